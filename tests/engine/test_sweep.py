"""The sweep against the simulated cloud and real stores: what it finds, what it leaves alone, what it survives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault, Script
from chalicelib.backends.spi import CreateRequest, Owned
from chalicelib.domain import keys
from chalicelib.domain.events import EVERYWHERE, Event, EventType
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.sightings import Sighting
from chalicelib.domain.tenants import Project
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.engine.sweep import Sweeper, Swept
from chalicelib.errors import Transient
from chalicelib.planning.kernel.purchases import confirmation_delay
from chalicelib.planning.machines.orphans import SIGHTING_LASTS
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Index, Page, Store
from chalicelib.store.sqlite import SqliteStore
from tests.world.engine import Engine
from tests.world.nouns import PROJECT
from tests.world.ports import Books, accounts

APART = confirmation_delay(FACTS)


class Scene:
    """A store and the accounts of one or two clouds; a sweeper of its own for each look, as after a restart."""

    def __init__(self, *clouds: FakeCloud, store: Store | None = None, place: Engine | None = None) -> None:
        ports = {"backends": accounts(FACTS), **({"store": store} if store is not None else {})}
        self.place = place or Engine.in_memory(**ports)
        self.store: Store = self.place.store
        self.script = Script(end=0)
        self.cloud = clouds[0] if clouds else FakeCloud(self.place.now, script=self.script)
        self.accounts = Accounts([Account.of(self.cloud)])
        for number, project_id in enumerate((PROJECT, derive("test", "project", 2))):
            project = Project(id=project_id, name=f"project-{number}", owner_id="u", created_at=self.place.at)
            pointer = nouns.pointer(keys.project_name(project.name), project.id)
            self.store.commit([nouns.put(project), pointer])

    def sweep(self, after: int = 0) -> Swept:
        self.place.at += after
        here = EffectContext(self.store, self.place, self.accounts, "ours", b"k" * 32)
        load = Loader(Reader(self.store), Books(), self.accounts)
        sweeper, done = Sweeper(Executor(here, load, wake=self.place.woken.extend)), Swept()
        for each in map(sweeper.run, self.accounts.accounts()):
            done.released += each.released
            done.lost += each.lost
        return done

    def buy(self, name: str, cloud: FakeCloud | None = None, install: str = "ours", project_id: str = PROJECT) -> str:
        """A machine and its disk at the cloud, tagged; returns the instance id that the tag names."""
        cloud, instance_id = cloud or self.cloud, derive("test", "instance", name)
        tags = (("dstack-install", install), ("dstack-project", project_id), ("dstack-instance", instance_id))
        request = CreateRequest(
            token=derive(install, "create", name),
            name=f"dstack-{install}-{name}",
            tags=(*tags, ("dstack-epoch", "0")),
            offer=cloud.offers()[0],
            instance_id=instance_id,
            user_data="",
            disk_mib=1024,
        )
        assert len(list(cloud.create(request))) == 2
        return instance_id

    def add(self, name: str, status: str, project_id: str = PROJECT, **more: object) -> Instance:
        """An instance in its own fleet, with a machine."""
        cloud = next(a.backend for a in self.accounts.accounts(project_id))
        assert isinstance(cloud, FakeCloud)
        instance_id = self.buy(name, cloud, project_id=project_id)
        fleet = self.place.fleet(name, nodes="0..3") if project_id == PROJECT else None
        instance = Instance.model_validate(
            {
                "id": instance_id,
                "project_id": project_id,
                "fleet_id": fleet.id if fleet else f"fleet-{name}",
                "fleet_name": name,
                "num": 0,
                "name": f"{name}-0",
                "offer": cloud.offers()[0],
                "status": status,
                "created_at": self.place.at,
                "last_processed_at": self.place.at,
                "due_at": self.place.at + MINUTE,
                "handles": [each.handle for each in cloud.list_owned(instance_id)],
                **more,
            }
        )
        self.store.commit([nouns.put(instance)])
        if fleet is None:
            self.store.commit([nouns.pointer(keys.fleet_name(project_id, name), instance.fleet_id)])
        return instance

    def lose(self, instance: Instance, cloud: FakeCloud | None = None) -> None:
        """Everything of it is gone from the cloud, without a word."""
        for handle in instance.handles:
            (cloud or self.cloud).lose(handle.id)

    def left(self, cloud: FakeCloud | None = None) -> set[str]:
        return {dict(body["tags"]).get("dstack-instance", "") for body in (cloud or self.cloud).resources()}

    def event_types(self, project_id: str = PROJECT) -> list[EventType | None]:
        page = self.store.query("main", f"events/{project_id}", limit=100)
        return [nouns.read(Event, record).type for record in page.records]


def own(name: str) -> str:
    return derive("test", "instance", name)


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    store: Store | None = None if request.param == "memory" else SqliteStore(tmp_path / "plane.db")
    made = Scene(store=store)
    yield made
    made.store.close()


# --- what belongs to nobody -------------------------------------------------------------------------------------------


def test_what_belongs_to_nobody_is_ended_when_a_later_sweep_agrees(scene: Scene) -> None:
    sweep_twice(scene)


def sweep_twice(scene: Scene) -> None:
    scene.add("alive", "busy")
    scene.add("ended", "terminated", finished_at=scene.place.at)
    scene.buy("unheard-of")
    scene.buy("neighbour", install="theirs")
    everything = {own(name) for name in ("alive", "ended", "unheard-of", "neighbour")}
    assert scene.sweep(after=MINUTE) == Swept()
    assert scene.left() == everything
    assert scene.event_types() == [EventType.orphaned] * 4  # two resources each
    assert scene.sweep(after=APART - 1) == Swept()
    assert scene.left() == everything
    found = scene.sweep(after=1)
    assert {one.instance_id for one in found.released} == {own("ended"), own("unheard-of")}
    assert scene.left() == {own("alive"), own("neighbour")}
    assert scene.event_types() == [EventType.orphaned] * 4 + [EventType.reclaimed] * 4
    assert scene.sweep(after=APART) == Swept()
    assert all(sighting.until <= scene.place.at for sighting in sightings(scene))


def sightings(scene: Scene) -> list[Sighting]:
    page = scene.store.query("main", keys.sightings_of(f"{FACTS.name}-all"), limit=100)
    return [nouns.read(Sighting, record) for record in page.records]


def test_what_turns_out_to_be_somebodys_is_left_alone(scene: Scene) -> None:
    """As when an older copy of the store was put back, and then the right one."""
    instance = scene.add("restored", "idle")
    key = keys.instance(instance.id)
    scene.store.commit([Delete(key)])
    scene.sweep()
    scene.store.commit([nouns.put(instance)])
    scene.sweep(after=APART)
    scene.store.commit([Delete(key)])
    assert scene.sweep(after=MINUTE) == Swept()  # a first sight again
    assert scene.left() == {instance.id}


def test_what_a_purchase_has_created_twice_is_ended_once(scene: Scene) -> None:
    """It was listed too late to be adopted."""
    instance = scene.add("twice", "idle")
    late, *others = instance.handles
    recorded = scene.place.again(instance).with_(handles=(late.with_(id="another"), *others))
    scene.store.commit([nouns.put(recorded)])
    assert scene.sweep() == Swept()
    assert [one.handle.id for one in scene.sweep(after=APART).released] == [late.id]
    assert [body["id"] for body in scene.cloud.resources()] == [each.id for each in others]


def test_a_first_sight_is_forgotten_in_time(scene: Scene) -> None:
    scene.buy("unheard-of")
    scene.sweep()
    assert scene.sweep(after=SIGHTING_LASTS) == Swept()
    assert scene.left() == {own("unheard-of")}
    assert scene.sweep(after=APART).released


def test_an_end_that_fails_holds_up_no_other_and_is_asked_for_again(scene: Scene) -> None:
    scene.script.faults.append(Fault("terminate", "MissingPermission"))
    scene.buy("one")
    scene.buy("two")
    scene.sweep()
    assert len(scene.sweep(after=APART).released) == 3
    assert len(scene.sweep(after=SECOND).released) == 1
    assert scene.left() == set()
    assert scene.event_types().count(EventType.reclaimed) == 4


def test_what_has_the_tag_of_no_project_is_in_the_history_of_the_installation(scene: Scene) -> None:
    gone = Project(id="gone", name="gone", owner_id="u", created_at=scene.place.at, deleted=True)
    scene.store.commit([nouns.put(gone)])
    for project_id in ("gone", "never-was"):
        scene.buy(project_id, project_id=project_id)
    scene.sweep()
    assert len(scene.sweep(after=APART).released) == 4
    assert scene.event_types() == scene.event_types("gone") == scene.event_types("never-was") == []
    assert sorted(map(str, scene.event_types(EVERYWHERE))) == ["orphaned"] * 4 + ["reclaimed"] * 4


# --- what a listing doesn't prove -------------------------------------------------------------------------------------


class BreaksOff(FakeCloud):
    """Its listing ends after the first resource, with an error."""

    broken = True

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        for one in super().list_owned(instance_id, region):
            yield one
            if self.broken:
                raise Transient("the second page was never answered")
        if self.broken:
            raise Transient("nothing was answered")


class Buggy(BreaksOff):
    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        if self.broken:
            raise ZeroDivisionError
        return FakeCloud.list_owned(self, instance_id, region)


@pytest.mark.parametrize("kind", [BreaksOff, Buggy])
def test_a_listing_that_fails_or_breaks_off_proves_nothing(kind: type[BreaksOff]) -> None:
    place = Engine.in_memory(backends=accounts(FACTS))
    cloud = kind(place.now, script=Script(end=0))
    cloud.broken = False
    scene = Scene(cloud, place=place)
    instance = scene.add("lost", "idle")
    scene.lose(instance)
    scene.buy("unheard-of")
    cloud.broken = True
    for _ in range(3):
        assert scene.sweep(after=APART) == Swept()
    assert scene.event_types() == []
    cloud.broken = False
    scene.sweep(after=APART)
    cloud.broken = True
    assert scene.sweep(after=APART) == Swept()  # and undoes no first sight
    cloud.broken = False
    done = scene.sweep(after=APART)
    assert (len(done.released), done.lost) == (2, [instance.id])


# --- whose machine is gone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["provisioning", "idle", "busy"])
def test_an_instance_whose_machine_is_gone_is_settled_when_a_later_sweep_agrees(scene: Scene, status: str) -> None:
    instance = scene.add("lost", status)
    scene.add("alive", status)
    scene.lose(instance)
    assert scene.sweep() == Swept()
    assert scene.event_types() == [EventType.missing]
    assert scene.sweep(after=APART - 1) == Swept()
    assert scene.place.again(instance).status == status
    assert scene.sweep(after=1).lost == [instance.id]
    settled = scene.place.again(instance)
    assert settled.status is InstanceStatus.terminated
    assert settled.message.startswith("there is no machine ")
    assert f"instance/{instance.id}" in scene.place.woken
    assert scene.sweep(after=APART) == Swept()


def test_a_machine_that_is_listed_again_was_never_gone() -> None:
    class Flickers(FakeCloud):
        shows = True

        def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
            return super().list_owned(instance_id, region) if self.shows else iter(())

    place = Engine.in_memory(backends=accounts(FACTS))
    cloud = Flickers(place.now)
    scene = Scene(cloud, place=place)
    instance = scene.add("flickering", "idle")
    for cloud.shows in (False, True, False, True):
        assert scene.sweep(after=APART) == Swept()
    assert scene.event_types() == [EventType.missing] * 2
    assert scene.place.again(instance).status is InstanceStatus.idle


def test_an_instance_whose_agent_reports_has_its_machine(scene: Scene) -> None:
    instance = scene.add("untagged", "idle")
    scene.lose(instance)
    promise = Presence(
        instance_id=instance.id, project_id=PROJECT, last_seen=scene.place.at, seen_until=scene.place.at + APART
    )
    scene.store.commit([nouns.put(promise)])
    scene.sweep()
    assert scene.sweep(after=APART) == Swept()
    assert scene.event_types() == []
    scene.sweep(after=1)  # its promise has passed
    assert scene.sweep(after=APART).lost == [instance.id]


def test_an_instance_is_looked_for_at_its_own_backend_only(scene: Scene) -> None:
    offer = scene.cloud.offers()[0].with_(backend="nimbus")
    elsewhere = scene.add("elsewhere", "idle", offer=offer)
    scene.lose(elsewhere)
    assert scene.sweep() == scene.sweep(after=APART) == Swept()
    assert scene.event_types() == []


def test_what_an_index_doesnt_know_yet_is_read_as_it_is() -> None:
    scene = Scene(place=Engine.in_memory(backends=accounts(FACTS), lag=10 * MINUTE))
    instance = scene.add("ended", "idle")
    scene.place.at += 10 * MINUTE
    scene.place.store.query("gsi1", keys.instances_of(instance.fleet_id))
    scene.lose(instance)
    ended = scene.place.again(instance).with_(status=InstanceStatus.terminated, finished_at=scene.place.at)
    scene.store.commit([nouns.put(ended)])
    assert scene.sweep() == scene.sweep(after=APART) == Swept()
    assert scene.event_types() == []


# --- several accounts, several sweeps ---------------------------------------------------------------------------------

OTHER = derive("test", "project", 2)


def of_two(script: Script | None = None) -> tuple[Scene, FakeCloud]:
    place = Engine.in_memory(backends=accounts(FACTS))
    own_cloud, other_cloud = (
        FakeCloud(place.now, script=script or Script(end=0)),
        FakeCloud(place.now, script=Script(end=0)),
    )
    scene = Scene(own_cloud, place=place)
    scene.accounts = Accounts([Account.of(own_cloud, PROJECT), Account.of(other_cloud, OTHER)])
    return scene, other_cloud


def test_every_account_is_swept_and_each_instance_is_looked_for_in_its_own() -> None:
    scene, other_cloud = of_two()
    own_instance, other = scene.add("mine", "idle"), scene.add("other", "idle", OTHER)
    scene.buy("stray-here")
    scene.buy("stray-there", other_cloud, project_id=OTHER)
    scene.sweep()
    assert (scene.event_types(), scene.event_types(OTHER)) == ([EventType.orphaned] * 2, [EventType.orphaned] * 2)
    done = scene.sweep(after=APART)
    assert ({one.instance_id for one in done.released}, done.lost) == ({own("stray-here"), own("stray-there")}, [])
    assert (scene.left(), scene.left(other_cloud)) == ({own_instance.id}, {other.id})


def test_an_account_that_fails_holds_up_no_other() -> None:
    scene, other_cloud = of_two(Script(end=0, faults=[Fault("list", "Transient", times=2)]))
    scene.buy("stray-here")
    scene.buy("stray-there", other_cloud, project_id=OTHER)
    scene.sweep()
    assert len(scene.sweep(after=APART).released) == 2
    assert (scene.left(), scene.left(other_cloud)) == ({own("stray-here")}, set())


def test_of_two_sweeps_at_once_one_tells_and_both_agree_later(caplog: pytest.LogCaptureFixture) -> None:
    class Overtaken(MemoryStore):
        """Another sweep runs between this one's reading of the first sights and its commit."""

        other: Callable[[], object] | None = None

        def query(self, index: Index, partition: str, **more: object) -> Page:  # type: ignore[override]
            page = super().query(index, partition, **more)  # type: ignore[arg-type]
            if partition.startswith("sightings/") and self.other is not None:
                other, self.other = self.other, None
                other()
            return page

    store = Overtaken()
    scene = Scene(store=store)
    scene.buy("unheard-of")
    caplog.set_level("WARNING")
    store.other = scene.sweep
    scene.sweep()
    assert scene.event_types() == [EventType.orphaned] * 2
    store.other = scene.sweep
    scene.sweep(after=APART)
    assert scene.event_types() == [EventType.orphaned] * 2 + [EventType.reclaimed] * 2
    assert scene.left() == set()
    assert not [record for record in caplog.records if record.exc_info]


def test_a_look_says_what_a_sweep_would_find_and_changes_nothing() -> None:
    scene = Scene()
    stray = scene.buy("stray")
    before = list(scene.store.scan())
    here = EffectContext(scene.store, scene.place, scene.accounts, "ours", b"k" * 32)
    sweeper = Sweeper(
        Executor(here, Loader(Reader(scene.store), Books(), scene.accounts), wake=scene.place.woken.extend)
    )
    account = scene.accounts.accounts()[0]
    found = sweeper.look(account)
    assert {each.kind for each in found} == {"machine"} and len(found) == 2, "a machine and its disk"
    assert all("which no record names" in each.says for each in found)
    scene.place.at += 10 * APART
    assert sweeper.look(account) == found and list(scene.store.scan()) == before
    assert {one.instance_id for one in scene.cloud.list_owned()} == {stray}

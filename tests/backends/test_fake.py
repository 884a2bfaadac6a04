"""The scripted cloud: what every backend does, and every misbehaviour it can be told to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, get_args

import pytest

from chalicelib.backends.simulated.catalog import MULTI_ATTACH
from chalicelib.backends.simulated.cloud import FACTS, NOTICE, Boot, FakeCloud
from chalicelib.backends.simulated.script import Call, Fault, Script, ScriptFile, read_script
from chalicelib.backends.simulated.state import FolderResources
from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from chalicelib.errors import (
    DstackError,
    Gone,
    InsufficientCapacity,
    InUse,
    Invalid,
    InvalidCredentials,
    QuotaExceeded,
    Throttled,
    Transient,
)
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance, group_request_for, inside, request_for, volume_request
from tests.backends.conformance.bundling import Bundling
from tests.backends.conformance.containers import ContainerConformance
from tests.backends.conformance.provider import Provider
from tests.backends.conformance.suite import Suite
from tests.backends.planted import containers as of_containers
from tests.backends.planted.suite import ALL, PlantedFaults
from tests.backends.simulated_provider import SimulatedProvider

EVERY_CALL = get_args(Call)


class Machines:
    """A launcher that records its calls."""

    def __init__(self) -> None:
        self.up: list[Boot] = []
        self.killed: list[str] = []

    def launch(self, boot: Boot) -> None:
        self.up.append(boot)

    def kill(self, machine_id: str) -> None:
        self.killed.append(machine_id)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def script() -> Script:
    return Script(lag=2 * SECOND)


@pytest.fixture
def machines() -> Machines:
    return Machines()


@pytest.fixture
def cloud(clock: Clock, script: Script, machines: Machines) -> FakeCloud:
    return FakeCloud(clock.now, script=script, launcher=machines)


@pytest.fixture
def wanted(cloud: FakeCloud) -> CreateRequest:
    return request_for(next(offer for offer in cloud.offers() if offer.instance.name == "sim.l4"))


class Simulated(Suite):
    @pytest.fixture
    def backend(self, cloud: FakeCloud) -> Backend:
        return cloud

    @pytest.fixture
    def provider(self, cloud: FakeCloud, script: Script) -> Provider:
        return SimulatedProvider(cloud, script)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        return FakeCloud(clock.now, script=Script(faults=[Fault(call, "Transient", times=99) for call in EVERY_CALL]))

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> Callable[[float], None]:
        return clock.passes


class TestFake(Simulated, BackendConformance):
    backend_name = "dstack"


class TestFakeByName(TestFake):
    """Without tokens: only the name in a lagging listing shows what exists."""

    @pytest.fixture
    def cloud(self, clock: Clock, script: Script, machines: Machines) -> FakeCloud:
        facts = FACTS.with_(idempotent_create=False)
        return FakeCloud(clock.now, script=script, launcher=machines, facts=facts)


class TestFakeOfContainers(TestFake):
    """Everything that is created is a container; machines are sold beside them."""

    @pytest.fixture
    def cloud(self, clock: Clock, script: Script, machines: Machines) -> FakeCloud:
        return FakeCloud(clock.now, script=script, launcher=machines, facts=FACTS.with_(containers=True))

    @pytest.fixture
    def request_one(self, offers: Sequence[Offer]) -> CreateRequest:
        return request_for(next(offer for offer in offers if offer.is_container))


class TestFakeOfBundles(TestFake):
    @pytest.fixture
    def cloud(self, clock: Clock, script: Script, machines: Machines) -> FakeCloud:
        return FakeCloud(clock.now, script=script, launcher=machines, facts=FACTS.with_(bundles=True))


class TestFakeInAFolder(TestFake):
    @pytest.fixture
    def cloud(self, clock: Clock, script: Script, machines: Machines, tmp_path: Path) -> FakeCloud:
        return FakeCloud(
            clock.now,
            script=script,
            launcher=machines,
            store=FolderResources(tmp_path / "a"),
            volumes=FolderResources(tmp_path / "b"),
        )


class SimulatedEast(Simulated):
    """Where there are zones, and a volume has one machine."""

    @pytest.fixture
    def script(self) -> Script:
        return Script(lag=2 * SECOND, ready=7 * SECOND, attach=3 * SECOND, detach=4 * SECOND)

    @pytest.fixture
    def request_one(self, backend: Backend) -> CreateRequest:
        offers = [offer for offer in backend.offers() if offer.region not in MULTI_ATTACH]
        return request_for(min(offers, key=lambda offer: offer.price))


class TestFakeWhereVolumesHaveOneMachine(SimulatedEast, TestFake):
    pass


class TestFaults(PlantedFaults, SimulatedEast):
    sound, sound_broken = SimulatedEast.backend, SimulatedEast.broken
    unnoticed: ClassVar = {
        "IgnoresWhichZoneWasTried": "its regions have capacity, and not its zones: it never tries another",
        "NeverNamesTheZoneThatItTries": "the same",
        "ShowsAllThatItHolds": "it has no secrets",
    }


class SimulatedPods(Simulated):
    @pytest.fixture
    def cloud(self, clock: Clock, script: Script, machines: Machines) -> FakeCloud:
        return FakeCloud(clock.now, script=script, launcher=machines, facts=FACTS.with_(containers=True))


class SimulatedBundles(Simulated):
    @pytest.fixture
    def cloud(self, clock: Clock, script: Script, machines: Machines) -> FakeCloud:
        return FakeCloud(clock.now, script=script, launcher=machines, facts=FACTS.with_(bundles=True))


class TestBundleFaults(PlantedFaults, SimulatedBundles):
    sound, sound_broken = SimulatedBundles.backend, SimulatedBundles.broken
    pairs: ClassVar = [(fault, case) for fault, case in ALL if hasattr(Bundling, f"test_{case.name}")]

    def test_every_case_has_a_fault_that_it_notices(self, sound: Backend) -> None:
        named = {name.removeprefix("test_") for name in vars(Bundling) if name.startswith("test_")}
        assert named - {case.name for _, case in self.pairs} == set()


class TestContainerFaults(PlantedFaults, SimulatedPods):
    sound, sound_broken = SimulatedPods.backend, SimulatedPods.broken
    pairs: ClassVar = [(fault, case) for fault, case in ALL if fault.__module__ == of_containers.__name__]

    def test_every_case_has_a_fault_that_it_notices(self, sound: Backend) -> None:
        named = {name.removeprefix("test_") for name in vars(ContainerConformance) if name.startswith("test_")}
        assert named - {case.name for _, case in self.pairs} == set()


def test_impatient_repeat_buys_twice_where_only_a_lagging_name_tells(clock: Clock, wanted: CreateRequest) -> None:
    """The trap that `act_until` exists for: it must really be there."""
    cloud = FakeCloud(clock.now, script=Script(lag=5 * SECOND), facts=FACTS.with_(idempotent_create=False))
    list(cloud.create(wanted))
    list(cloud.create(wanted))
    assert len(cloud.machines()) == 2


def test_capacity_runs_out(cloud: FakeCloud, script: Script, wanted: CreateRequest) -> None:
    script.capacity[f"{wanted.offer.region}/{wanted.offer.instance.name}"] = 1
    list(cloud.create(wanted))
    with pytest.raises(InsufficientCapacity, match=r"sim\.l4"):
        list(cloud.create(request_for(wanted.offer, "two")))
    stated = next(offer for offer in cloud.offers() if offer.key == wanted.offer.key)
    assert not stated.availability.usable


def test_quota_is_reached(cloud: FakeCloud, script: Script, wanted: CreateRequest) -> None:
    script.quota["sim.l4"] = 0
    with pytest.raises(QuotaExceeded):
        list(cloud.create(wanted))
    assert cloud.resources() == []


@pytest.mark.parametrize(
    ("error", "kind"), [("Throttled", Throttled), ("Transient", Transient), ("InvalidCredentials", InvalidCredentials)]
)
def test_scripted_fault_is_used_up(
    cloud: FakeCloud, script: Script, wanted: CreateRequest, error: str, kind: type[DstackError]
) -> None:
    script.faults.append(Fault("create", error))
    with pytest.raises(kind):
        list(cloud.create(wanted))
    assert cloud.resources() == []
    assert len(list(cloud.create(wanted))) == 2


def test_fault_may_be_of_one_place_only(cloud: FakeCloud, script: Script, wanted: CreateRequest) -> None:
    script.faults.append(Fault("create", "InsufficientCapacity", region="elsewhere"))
    assert len(list(cloud.create(wanted))) == 2


def test_reply_lost_after_the_effect(cloud: FakeCloud, script: Script, wanted: CreateRequest) -> None:
    script.faults.append(Fault("create", "Transient", when="after"))
    with pytest.raises(Transient):
        list(cloud.create(wanted))
    assert len(cloud.machines()) == 1
    assert len(list(cloud.create(wanted))) == 2
    assert len(cloud.machines()) == 1


def test_failure_between_two_resources_leaves_the_first(
    cloud: FakeCloud, script: Script, wanted: CreateRequest
) -> None:
    script.faults.append(Fault("create", "InsufficientCapacity", when="between"))
    making = cloud.create(wanted)
    assert next(making).kind == "disk"
    with pytest.raises(InsufficientCapacity):
        next(making)
    assert [body["kind"] for body in cloud.resources()] == ["disk"]


def test_new_resources_stay_hidden_for_the_lag(cloud: FakeCloud, clock: Clock, wanted: CreateRequest) -> None:
    handles = list(cloud.create(wanted))
    assert list(cloud.list_owned()) == []
    with pytest.raises(Gone):
        cloud.describe(handles)
    clock.at += 2 * SECOND
    assert len(list(cloud.list_owned())) == 2


def test_termination_that_lies(cloud: FakeCloud, clock: Clock, script: Script, wanted: CreateRequest) -> None:
    script.lies = 1
    machine = list(cloud.create(wanted))[1]
    cloud.terminate(machine)
    clock.at += 3600 * SECOND
    assert len(cloud.machines()) == 1
    cloud.terminate(machine)
    clock.at += script.end
    with pytest.raises(Gone):
        cloud.terminate(machine)


def test_interruption_is_announced_and_then_happens(
    cloud: FakeCloud, clock: Clock, wanted: CreateRequest, machines: Machines
) -> None:
    handles = list(cloud.create(wanted))
    clock.at += 10 * SECOND
    assert not cloud.describe(handles).interrupted
    cloud.interrupt(wanted.instance_id)
    assert cloud.describe(handles).interrupted
    clock.at += NOTICE
    with pytest.raises(Gone):
        cloud.describe(handles)
    assert machines.killed == [handles[1].id]


def test_machine_lost_without_a_word(cloud: FakeCloud, clock: Clock, wanted: CreateRequest, machines: Machines) -> None:
    handles = list(cloud.create(wanted))
    clock.at += 10 * SECOND
    cloud.lose(handles[1].id)
    with pytest.raises(Gone):
        cloud.describe(handles)
    assert machines.killed == [handles[1].id]


def test_a_cloud_that_is_switched_off_has_no_machines(
    cloud: FakeCloud, wanted: CreateRequest, machines: Machines
) -> None:
    handles = list(cloud.create(wanted))
    assert cloud.switch_off() == 1 and cloud.switch_off() == 0
    assert not cloud.machines() and machines.killed == [handle.id for handle in handles if handle.kind == "vm"]
    with pytest.raises(Gone):
        cloud.describe(handles)


def test_agent_that_never_comes(
    cloud: FakeCloud, clock: Clock, script: Script, wanted: CreateRequest, machines: Machines
) -> None:
    script.absent = 1
    handles = list(cloud.create(wanted))
    clock.at += 10 * SECOND
    assert cloud.describe(handles).state == "running"
    assert machines.up == []


def test_machine_is_told_what_it_is(cloud: FakeCloud, wanted: CreateRequest, machines: Machines) -> None:
    list(cloud.create(wanted))
    (boot,) = machines.up
    assert boot.user_data == wanted.user_data
    assert boot.resources.gpus[0].name == "L4"


def test_state_outlives_the_cloud(clock: Clock, wanted: CreateRequest, tmp_path: Path) -> None:
    handles = list(FakeCloud(clock.now, store=FolderResources(tmp_path)).create(wanted))
    again = FakeCloud(clock.now, store=FolderResources(tmp_path))
    assert [each.handle for each in again.list_owned()] == handles
    assert list(again.create(wanted)) == handles


def test_new_volumes_stay_hidden_for_the_lag(cloud: FakeCloud, clock: Clock) -> None:
    volume = cloud.create_volume(volume_request("sim-east"))
    assert list(cloud.list_owned_volumes()) == []
    with pytest.raises(Gone):
        cloud.describe_volume(volume)
    clock.at += 2 * SECOND
    assert len(list(cloud.list_owned_volumes())) == 1 and cloud.describe_volume(volume).state == "available"


def test_slow_disks_take_the_time_they_are_told_to(clock: Clock) -> None:
    cloud = FakeCloud(clock.now, script=Script(ready=7 * SECOND, attach=3 * SECOND, detach=4 * SECOND))
    offer = next(offer for offer in cloud.offers() if offer.region == "sim-east")
    machine = list(cloud.create(request_for(offer.with_(availability_zones=("sim-east-a",)))))
    volume = cloud.create_volume(volume_request("sim-east"))
    assert cloud.describe_volume(volume).state == "creating"
    with pytest.raises(InUse):
        cloud.attach_volume(volume, machine)
    clock.at += 7 * SECOND
    cloud.attach_volume(volume, machine)
    assert cloud.describe_volume(volume).attached_to == ()
    clock.at += 3 * SECOND
    assert len(cloud.describe_volume(volume).attached_to) == 1
    cloud.detach_volume(volume, machine)
    assert cloud.describe_volume(volume).state == "in_use"
    clock.at += 4 * SECOND
    assert cloud.describe_volume(volume).state == "available"


def test_requests_about_volumes_that_lie(clock: Clock, script: Script, cloud: FakeCloud) -> None:
    offer = next(offer for offer in cloud.offers() if offer.region == "sim-east")
    machine = list(cloud.create(request_for(offer.with_(availability_zones=("sim-east-a",)))))
    volume = cloud.create_volume(volume_request("sim-east"))
    clock.at += 10 * SECOND

    def state() -> str:
        return cloud.describe_volume(volume).state

    for request, after in (
        (lambda: cloud.attach_volume(volume, machine), "in_use"),
        (lambda: cloud.detach_volume(volume, machine), "available"),
        (lambda: cloud.delete_volume(volume), "deleting"),
    ):
        before, script.lies = state(), 1
        request()
        assert state() == before
        request()
        assert state() == after


def test_a_description_that_forgets_its_volume(cloud: FakeCloud, clock: Clock, script: Script) -> None:
    volume = cloud.create_volume(volume_request("sim-east"))
    clock.at += 10 * SECOND
    script.forgets = 1
    with pytest.raises(Gone):
        cloud.describe_volume(volume)
    assert cloud.describe_volume(volume).state == "available"


def test_volumes_are_sold_in_the_clouds_zones_and_within_its_quota(cloud: FakeCloud, script: Script) -> None:
    for where in ({"region": "nowhere"}, {"zone": "sim-west-a"}):
        with pytest.raises(InsufficientCapacity, match="no volumes in"):
            cloud.create_volume(replace(volume_request("sim-east"), **where))
    script.quota["volume"] = 1
    cloud.create_volume(volume_request("sim-east"))
    with pytest.raises(QuotaExceeded):
        cloud.create_volume(volume_request("sim-east", "two"))


def test_a_reply_about_a_volume_is_lost_after_the_effect(cloud: FakeCloud, clock: Clock, script: Script) -> None:
    script.faults.append(Fault("create_volume", "Transient", when="after"))
    with pytest.raises(Transient):
        cloud.create_volume(volume_request("sim-east"))
    assert len(cloud.disks.all()) == 1
    cloud.create_volume(volume_request("sim-east"))
    assert len(cloud.disks.all()) == 1


def test_unknown_offer_is_refused(cloud: FakeCloud, wanted: CreateRequest) -> None:
    with pytest.raises(InsufficientCapacity, match="isn't sold"):
        list(cloud.create(request_for(wanted.offer.with_(region="nowhere"))))


def test_script_in_a_file_is_read_when_it_changes(tmp_path: Path) -> None:
    file = ScriptFile(tmp_path / "script.json", Script(boot=7))
    assert file.current().boot == 7
    (tmp_path / "script.json").write_text(
        '{"end": 2.5, "lies": 1, "faults": [{"call": "create", "error": "Throttled"}]}'
    )
    script = file.current()
    assert (script.boot, script.end, script.lies) == (7, 2_500_000, 1)
    assert script.faults[0].error == "Throttled"
    assert file.current() is script


@pytest.mark.parametrize("text", ['{"lag": 1, "nonsense": 2}', '{"faults": [{"call": "create", "error": "Fire"}]}'])
def test_wrong_script_is_explained(text: str) -> None:
    with pytest.raises(Invalid):
        read_script(text.encode(), Script())


def test_some_of_several_may_be_refused() -> None:
    clock = Clock()
    cloud = FakeCloud(clock.now, script=Script(capacity={"sim-north/sim.2cpu": 2}))
    offer = next(each for each in cloud.offers() if each.key == "dstack/sim-north/sim.2cpu/on-demand")
    requests = [request_for(offer, name) for name in ("one", "two", "three")]
    made = list(cloud.create_several(requests))
    assert [str(each.error) for each in made if each.error] == ["no sim.2cpu is left in sim-north (simulated)"]
    assert made[-1].token == requests[2].token and len(cloud.machines()) == 2


def test_what_was_made_of_a_machine_that_fails_is_told_before_its_error() -> None:
    clock = Clock()
    cloud = FakeCloud(clock.now, script=Script(faults=[Fault("create", "InsufficientCapacity", "between")]))
    offer = next(iter(cloud.offers()))
    one, two = (request_for(offer, name) for name in ("one", "two"))
    made = list(cloud.create_several([one, two]))
    assert [(each.token, each.handle and each.handle.kind) for each in made] == [
        (one.token, "disk"),
        (one.token, None),
        (two.token, "disk"),
        (two.token, "vm"),
    ]


def test_a_group_shows_only_after_the_lag_and_takes_as_many_as_it_takes(
    cloud: FakeCloud, clock: Clock, script: Script, wanted: CreateRequest
) -> None:
    group = cloud.create_group(group_request_for(wanted.offer))
    with pytest.raises(Gone, match="no placement group"):
        list(cloud.create(inside(wanted, group)))
    assert cloud.machines() == [] and list(cloud.list_owned_groups()) == []
    clock.at += script.lag
    script.group = 1
    list(cloud.create(inside(wanted, group)))
    with pytest.raises(QuotaExceeded, match="takes 1 machines"):
        list(cloud.create(inside(request_for(wanted.offer, "two"), group)))
    assert len(list(cloud.create(inside(wanted, group)))) == 2, "one that is in stays in"


def test_a_group_takes_no_machine_of_another_place(cloud: FakeCloud, clock: Clock, script: Script) -> None:
    offer = next(each for each in cloud.offers() if each.region == "sim-east")
    group = cloud.create_group(group_request_for(offer))
    clock.at += script.lag
    elsewhere = tuple(zone for zone in offer.availability_zones or () if zone != group.data["zone"])
    with pytest.raises(InsufficientCapacity, match=group.data["zone"]):
        list(cloud.create(replace(inside(request_for(offer), group), zones=elsewhere)))
    far = next(each for each in cloud.offers() if each.region == "sim-west")
    with pytest.raises(InsufficientCapacity, match=group.data["zone"]):
        list(cloud.create(replace(request_for(far), placement_group=group)))
    assert cloud.machines() == []


def test_the_deletion_of_a_group_may_lie_too(cloud: FakeCloud, script: Script, wanted: CreateRequest) -> None:
    script.lies, script.end = 1, 0
    group = cloud.create_group(group_request_for(wanted.offer))
    cloud.delete_group(group)
    assert cloud.resources()
    cloud.delete_group(group)
    assert not cloud.resources()


def test_machines_that_are_processes_here_are_reached_here(clock: Clock) -> None:
    cloud = FakeCloud(clock.now, hostname="localhost")
    made = list(cloud.create(request_for(cloud.offers()[0])))
    clock.at += 10 * SECOND
    assert cloud.describe(made).hostname == "localhost"

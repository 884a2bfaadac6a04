"""A control plane moves to another place and back while it works. The command that moves it is killed at each of its
calls, before and after. Nothing is lost, nothing is done twice, and never do both places decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.domain.fences import FenceState
from chalicelib.domain.instants import HOUR
from chalicelib.domain.keys import FENCE, Key
from chalicelib.errors import Moved, Refused
from chalicelib.runtime.migration import places
from chalicelib.runtime.migration.signpost import fenced
from chalicelib.runtime.migration.steps import Migration, Place
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.fences import decides, fence_of
from chalicelib.store.log_files import FileLogs
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change, Put, Record
from chalicelib.store.sqlite import SqliteStore
from tests.world.moving import Killed, MovingWorld, Server, Watched, move
from tests.world.site import ADMIN
from tests.world.time import Clock

HEADERS = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
FLEET = {"type": "fleet", "name": "pool", "nodes": "0..6"}


class Load:
    """A user who submits a run whenever a control plane takes it."""

    def __init__(self, world: MovingWorld, urls: list[str]) -> None:
        self.world, self._urls = world, urls
        self.taken: list[str] = []
        self._next = 0.0

    def call(self, path: str, body: Any) -> tuple[int, Any]:
        """The answer of whichever decides; else the last refusal."""
        status, answer = 0, b"null"
        for url in self._urls:
            if url in self.world.answers:
                status, answer = self.world.answers[url]("POST", path, HEADERS, orjson.dumps(body))
                if status == 200:
                    break
        return status, orjson.loads(answer or b"null")

    def submit(self, seconds: int = 8) -> None:
        name = f"run-{len(self.taken)}"
        configuration = {"type": "task", "name": name, "commands": ["echo begun", f"sleep {seconds}", "echo over"]}
        spec = {"configuration": {**configuration, "resources": {"cpu": "1..", "memory": "1GB..", "disk": "10GB.."}}}
        status, answer = self.call("/api/project/main/runs/get_plan", {"run_spec": spec})
        if status == 200:
            plan = {"run_spec": answer["run_spec"], "current_resource": None}
            status, answer = self.call("/api/project/main/runs/apply", {"plan": plan, "force": False})
        if status == 200:
            self.taken.append(name)
        else:
            assert "moved" in str(answer) or "moving" in str(answer), answer

    def goes_on(self) -> None:
        """A moment passes in the world."""
        if self.world.time.seconds() >= self._next and len(self.taken) < 40:
            self._next = self.world.time.seconds() + 4.0
            self.submit()
        self.world.time.pass_(0.1)


class Moving:
    def __init__(self, folder: Path) -> None:
        self.world = MovingWorld()
        self.here = Server(self.world, folder / "here", "http://127.0.0.1:30000")
        self.there = Server(self.world, folder / "there", "http://127.0.0.1:30001")
        self.here.start()
        self.load = Load(self.world, [self.here.url, self.there.url])

    def passes(self) -> None:
        """A moment, after which each server has noticed what its fence says."""
        assert not (self.here.decides() and self.there.decides())
        for each in (self.here, self.there):
            each.notice()
        self.load.goes_on()

    def move(self, source: Server, target: Server) -> int:
        killed = move(self.world, lambda watched: (source.place(watched), target.place(watched)), self.passes)
        target.start()
        source.start()
        return killed

    def until(self, what: str, done: Callable[[], bool]) -> None:
        end = self.world.time.at + HOUR
        while not done():
            assert self.world.time.at < end, f"waited an hour in vain for {what}"
            self.world.time.pass_(1.0)

    def runs(self) -> dict[str, str]:
        status, found = self.load.call("/api/runs/list", {"only_active": False, "limit": 100})
        assert status == 200
        return {run["run_spec"]["run_name"]: run["status"] for run in found}

    def log(self, name: str) -> bytes:
        (site,) = [each.site for each in (self.here, self.there) if each.site is not None]
        run = next(
            r
            for r in site.call("/api/runs/list", {"only_active": False, "limit": 100})
            if r["run_spec"]["run_name"] == name
        )
        job = run["jobs"][0]["job_submissions"][-1]["id"]
        page = site.root.ports.logs.read(run["project_id"] if "project_id" in run else self.project_id(site), job)
        return b"".join(data for _, data in page.records)

    def project_id(self, site: Any) -> str:
        return str(site.call("/api/projects/main/get", {})["project_id"])

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    with closing(Moving(tmp_path)) as found:
        yield found


@pytest.mark.slow
def test_a_control_plane_moves_there_and_back_whenever_the_command_is_killed(moving: Moving) -> None:
    load, world = moving.load, moving.world
    status, answer = load.call(
        "/api/project/main/fleets/apply", {"plan": {"spec": {"configuration": FLEET}}, "force": False}
    )
    assert status == 200, answer
    for _ in range(100):
        load.goes_on()
    assert load.taken

    killed = moving.move(moving.here, moving.there)
    assert killed > 20
    assert fenced(moving.here.folder) is not None and fenced(moving.there.folder) is None
    before_back = len(load.taken)
    for _ in range(100):
        moving.passes()
    assert len(load.taken) > before_back
    killed = moving.move(moving.there, moving.here)
    assert killed > 20
    assert fenced(moving.there.folder) is not None and fenced(moving.here.folder) is None

    moving.until("all runs", lambda: set(moving.runs().values()) == {"done"})
    assert set(moving.runs()) == set(load.taken)
    assert {moving.log(name) for name in load.taken} == {b"begun\nover\n"}
    site = moving.here.site
    assert site is not None
    assert len(site.hosts.tasks) == len(load.taken)  # each job ran once
    assert world.redirected
    site.call("/api/project/main/fleets/delete", {"names": ["pool"]})
    moving.until("the machines' end", lambda: not site.cloud.resources())


@pytest.mark.slow
def test_agents_get_time_to_find_the_new_place_however_long_the_way_there_took(moving: Moving) -> None:
    load, world = moving.load, moving.world
    load.call("/api/project/main/fleets/apply", {"plan": {"spec": {"configuration": FLEET}}, "force": False})
    load.submit(seconds=7200)
    moving.until("the run", lambda: moving.runs() == {"run-0": "running"})

    def interrupted() -> None:
        moving.here.start()  # the server stops at the fence …
        raise Killed  # … and so does the command

    with closing(Watched(0, after=False, passes=lambda: None)) as watched:
        source = replace(moving.here.place(watched), settle=interrupted)
        with pytest.raises(Killed):
            Migration(source, moving.there.place(watched), world.time, lambda: "m", lambda _: None).run()
    world.time.pass_(1800)  # nobody decides for half an hour
    moving.move(moving.here, moving.there)
    world.time.pass_(1200)
    assert moving.runs() == {"run-0": "running"} and world.redirected
    site = moving.there.site
    assert site is not None
    events = [event["message"] for event in site.call("/api/events/list", {"limit": 100})]
    assert events and not [each for each in events if "unreachable" in each]


def test_whatever_is_committed_before_the_fence_arrives(tmp_path: Path) -> None:
    here, there = SqliteStore(tmp_path / "here.db"), SqliteStore(tmp_path / "there.db")
    written = 0

    def write() -> None:
        nonlocal written
        try:
            here.commit([Put(Record(Key("projects", "books"), written + 1, b"{}"), expect=written)])
        except Moved:
            return
        written += 1

    watched = Watched(0, after=False, passes=write)
    blobs, logs = FileBlobs(tmp_path / "blobs"), FileLogs(tmp_path / "logs")
    at = {"blobs": blobs, "logs": lambda _: logs, "keys": (b"", b""), "agents_url": "", "people_url": ""}
    source, target = (
        Place(name=name, store=watched.over(store), settle=lambda: None, **at)
        for name, store in (("here", here), ("there", there))
    )
    assert Migration(source, target, Clock(), lambda: "m", lambda _: None).run()
    last = there.get(Key("projects", "books"))
    assert last is not None and last.version == written > 5
    with pytest.raises(Moved):
        here.commit([Put(last, expect=None)])
    there.commit([Put(last, expect=None)])
    assert not Migration(source, target, Clock(), lambda: "m", lambda _: None).run()
    watched.close()


def test_a_place_in_use_or_with_other_keys_is_refused_and_a_migration_can_be_given_up(tmp_path: Path) -> None:
    stores = {name: SqliteStore(tmp_path / f"{name}.db") for name in ("here", "there", "used")}
    stores["used"].commit([Put(Record(Key("run/1", "status"), 1, b"{}"), expect=0)])
    blobs, logs = FileBlobs(tmp_path / "blobs"), FileLogs(tmp_path / "logs")

    def stops() -> None:
        raise Refused("AWS doesn't answer.")

    def place(name: str, settle: Callable[[], None] = lambda: None, key: bytes = b"") -> Place:
        return Place(name, stores[name], blobs, lambda _: logs, (key, key), "http://a", "http://a", settle)

    def migration(source: Place, target: Place) -> Migration:
        return Migration(source, target, Clock(), lambda: "m", lambda _: None)

    with pytest.raises(Refused, match="in use"):
        migration(place("here"), place("used")).run()
    with pytest.raises(Refused, match="other keys"):
        migration(place("here"), place("there", key=b"1")).run()
    with pytest.raises(Refused, match="no migration to give up"):
        migration(place("here"), place("there")).give_up()
    with pytest.raises(Refused, match="AWS"):
        migration(place("here", settle=stops), place("there")).run()
    assert not decides(stores["here"]) and not decides(stores["there"])
    migration(place("here"), place("there")).give_up()
    assert decides(stores["here"]) and not decides(stores["there"])
    assert migration(place("here"), place("there")).run()
    with pytest.raises(Refused, match="decides already"):
        migration(place("here"), place("there")).give_up()
    for store in stores.values():
        store.close()


def test_a_migration_that_is_given_up_while_its_command_still_runs_leaves_one_place_that_decides(
    tmp_path: Path,
) -> None:
    stores = {name: SqliteStore(tmp_path / f"{name}.db") for name in ("here", "there")}
    blobs, logs = FileBlobs(tmp_path / "blobs"), FileLogs(tmp_path / "logs")

    def migration(**over: Any) -> Migration:
        here, there = (
            Place(name, over.get(name, store), blobs, lambda _: logs, (b"", b""), "http://a", "http://a", lambda: None)
            for name, store in stores.items()
        )
        return Migration(here, there, Clock(), lambda: "m", lambda _: None)

    def fails() -> None:
        raise Refused("AWS doesn't answer.")

    def fence() -> None:
        opened = fence_of(stores["there"])
        assert opened is not None
        migration()._fence(opened)

    with pytest.raises(Refused, match="given up meanwhile"):  # just before the source's fence is set
        migration(here=Before(stores["here"], FenceState.moved, migration().give_up)).run()
    assert decides(stores["here"]) and not decides(stores["there"])
    with pytest.raises(Refused, match="AWS"):
        migration(here=Before(stores["here"], FenceState.moved, fails)).run()
    migration(there=Before(stores["there"], FenceState.void, fence)).give_up()  # which has looked at the source before
    assert decides(stores["here"]) and not decides(stores["there"])
    assert migration().run(), "it can be begun again"
    assert decides(stores["there"]) and not decides(stores["here"])
    for store in stores.values():
        store.close()


class Before:
    """A store, and what happens just before its fence gets this state."""

    def __init__(self, store: SqliteStore, state: FenceState, do: Callable[[], None]) -> None:
        self._store, self._state, self._do = store, state, do

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change]) -> None:
        fences = [each for each in changes if isinstance(each, Put) and each.key == FENCE]
        if any(orjson.loads(each.record.body)["state"] == self._state for each in fences):
            self._do()
        self._store.commit(changes)


def test_keys_of_a_stage_in_use_are_not_replaced_in_an_account_with_many_tables() -> None:
    with pytest.raises(Refused, match="in use"):
        places._refuse_if_used("prod", lambda _: Tables({"dstack-prod"}), lambda _: Used())
    places._refuse_if_used("prod", lambda _: Tables(set()), lambda _: Used())


class Used(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.commit([Put(Record(Key("run/1", "status"), 1, b"{}"), expect=0)])


class Tables:
    """DynamoDB, whose lists have a hundred tables a page."""

    class exceptions:  # as boto3 names it
        class ResourceNotFoundException(Exception): ...

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def list_tables(self) -> Any:
        return {"TableNames": [f"a{n}" for n in range(100)], "LastEvaluatedTableName": "a99"}

    def describe_table(self, TableName: str) -> Any:
        if TableName not in self._names:
            raise self.exceptions.ResourceNotFoundException
        return {}

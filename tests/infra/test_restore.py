"""A stage's table gets the records of a moment, while its functions rest, after the operator has seen what differs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from chalicelib.domain.fences import Fence, FenceState
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.keys import FENCE, RESTORATION, Due, Key
from chalicelib.domain.restorations import Restoration
from chalicelib.engine.hold import go_on
from chalicelib.errors import Invalid, Refused
from chalicelib.store import nouns
from chalicelib.store.fences import decides
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Put, Record
from infra import command, restore
from infra.functions import HOLDS, reserved
from tests.infra.account import refused
from tests.world import nouns as b
from tests.world.time import Clock

FLEET = b.fleet("cloud")


STAGE, TABLE, COPY = "dev", "dstack-dev", "dstack-dev-at-20261121T080000"
AT = datetime(2026, 11, 21, 8, tzinfo=UTC)


class Functions:
    """Lambda: what may run, how often, and how often its processes were replaced."""

    def __init__(self, **reserved: int | None) -> None:
        self.reserved, self.replaced = reserved, dict.fromkeys(reserved, 0)
        self.variables: dict[str, dict[str, str]] = {name: {"KEPT": "1", HOLDS: "1"} for name in reserved}

    def get_paginator(self, name: str) -> Any:
        assert name == "list_functions"
        return self

    def paginate(self) -> list[Any]:
        listed = [
            {"FunctionName": name, "Timeout": 29, "Environment": {"Variables": self.variables[name]}}
            for name in self.reserved
        ]
        return [{"Functions": listed}]

    def update_function_configuration(self, FunctionName: str, Environment: Any) -> None:
        assert Environment["Variables"] != self.variables[FunctionName], "or Lambda changes nothing"
        assert Environment["Variables"]["KEPT"] == "1"
        self.variables[FunctionName] = Environment["Variables"]
        self.replaced[FunctionName] += 1

    def get_function_configuration(self, FunctionName: str) -> Any:
        return {"LastUpdateStatus": "Successful"}

    def get_account_settings(self) -> Any:
        taken = sum(found or 0 for found in self.reserved.values())
        return {"AccountLimit": {"UnreservedConcurrentExecutions": 1000 - taken}}

    def get_function_concurrency(self, FunctionName: str) -> Any:
        found = self.reserved[FunctionName]
        return {} if found is None else {"ReservedConcurrentExecutions": found}

    def put_function_concurrency(self, FunctionName: str, ReservedConcurrentExecutions: int) -> None:
        self.reserved[FunctionName] = ReservedConcurrentExecutions

    def delete_function_concurrency(self, FunctionName: str) -> None:
        self.reserved[FunctionName] = None


def pausing(functions: Functions, stage: str = STAGE, waited: list[float] | None = None) -> Any:
    sleep = (lambda _: None) if waited is None else waited.append
    return restore.stopped(functions, stage, "restored-1", restore.Pause(), print, sleep)


def test_functions_rest_meanwhile_and_run_as_before_however_it_ends() -> None:
    before = {"dstack-dev-api": 200, "dstack-dev-reconcile": None, "dstack-prod-api": 7, "dstack-dev-eu-api": 8}
    functions, waited = Functions(**before), list[float]()
    with pytest.raises(ZeroDivisionError), pausing(functions, waited=waited):
        assert functions.reserved == {**before, "dstack-dev-api": 0, "dstack-dev-reconcile": 0}
        assert waited == [29], "a call that had begun before may still commit"
        raise ZeroDivisionError
    assert functions.reserved == before
    assert functions.replaced == {**dict.fromkeys(before, 0), "dstack-dev-api": 1, "dstack-dev-reconcile": 1}
    with pytest.raises(Refused, match="There are no functions"), pausing(functions, "x"):
        pass


def test_a_stage_of_an_earlier_release_is_refused_which_would_act_at_once() -> None:
    trip = Trip()
    del trip.functions.variables["dstack-dev-reconcile"][HOLDS]
    with pytest.raises(Refused, match=r"dev has functions of an earlier release \(dstack-dev-reconcile\)"):
        trip.run()
    assert trip.records() == trip.now and trip.functions.reserved == trip.before and not trip.tables.there


def test_functions_that_a_killed_command_had_stopped_run_again_after_the_next_one() -> None:
    functions = Functions(**{"dstack-dev-api": 0, "dstack-dev-reconcile": 0, "dstack-dev-sweep": None})
    with pausing(functions):
        pass
    assert functions.reserved == {
        "dstack-dev-api": reserved(1000)["api"],
        "dstack-dev-reconcile": None,
        "dstack-dev-sweep": None,
    }


def test_a_stage_that_has_moved_is_not_restored_and_a_fence_is_never_that_of_then() -> None:
    live, then = MemoryStore(), MemoryStore()
    moved = Fence(state=FenceState.moved, migration="m", people_url="https://there")
    live.commit([nouns.put(moved)])
    with pytest.raises(Refused, match="has moved to https://there"):
        restore.check_decides(live, "dstack-dev")
    then.commit([nouns.put(Fence(state=FenceState.active, migration="l"))])
    assert restore.replace(live, then) == (0, 0)
    assert restore.replace(live, MemoryStore()) == (0, 0)
    assert not decides(live)
    restore.check_decides(then, "dstack-dev")
    restore.check_decides(MemoryStore(), "dstack-dev")


# --- the whole command, killed anywhere -------------------------------------------------------------------------------


class Killed(BaseException):
    """The command ends here, and does nothing any more."""


class Tables:
    """DynamoDB, as far as a table is copied."""

    def __init__(self, then: MemoryStore) -> None:
        self._then = then
        self.there: dict[str, MemoryStore] = {}
        self.states: dict[str, str] = {}
        self.exceptions = SimpleNamespace(ResourceNotFoundException=ClientError)

    def restore_table_to_point_in_time(self, SourceTableName: str, TargetTableName: str, RestoreDateTime: Any) -> None:
        if SourceTableName != TABLE:
            raise refused("TableNotFoundException", "")
        if TargetTableName in self.states:
            made = self.states[TargetTableName] == "ACTIVE"
            raise refused("TableAlreadyExistsException" if made else "TableInUseException", "")
        self.states[TargetTableName] = "CREATING"
        self.there[TargetTableName] = MemoryStore()
        self.there[TargetTableName].commit([Put(record, expect=0) for record in self._then.records()])

    def describe_table(self, TableName: str) -> Any:
        if TableName not in self.states:
            raise refused("ResourceNotFoundException", "")
        return {"Table": {"TableStatus": self.states[TableName]}}

    def delete_table(self, TableName: str) -> None:
        del self.there[TableName]
        self.states[TableName] = "DELETING"

    def get_waiter(self, name: str) -> Any:
        return SimpleNamespace(wait=lambda TableName, WaiterConfig: self._wait(name, TableName))

    def _wait(self, name: str, table: str) -> None:
        if name == "table_not_exists":
            assert self.states.pop(table, "DELETING") == "DELETING", "it would be waited for without end"
        else:
            assert self.states[table] in ("CREATING", "ACTIVE"), "it would be waited for without end"
            self.states[table] = "ACTIVE"


class Watched:
    """A service, at each of whose calls the command may be killed, before it or after; `check` follows each."""

    def __init__(self, find: Callable[[], Any], trip: Trip) -> None:
        self._find, self._trip = find, trip

    def __getattr__(self, name: str) -> Any:
        if name == "exceptions":
            return self._find().exceptions
        return lambda *given, **more: self._trip.called(lambda: getattr(self._find(), name)(*given, **more))


class Trip:
    """A stage, whose records of then are given back by whoever runs the command until it ends well."""

    def __init__(self, cut: int = 0, *, reached: bool = False) -> None:
        usual = reserved(1000)
        self.before = {f"dstack-dev-{name}": usual.get(name) for name in ("api", "reconcile", "provider_clouds")}
        self.functions, self.clock = Functions(**self.before), Clock()
        self.live, then = MemoryStore(), MemoryStore()
        both, bought = b.host(0, FLEET), b.host(1, FLEET)
        then.commit([nouns.put(both), nouns.put(b.host(2, FLEET))])
        self.live.commit([nouns.put(both), nouns.put(bought), nouns.put(Fence(state=FenceState.active, migration="m"))])
        for first in (0, 90):  # more than one commit takes
            some = range(first, first + 90)
            self.live.commit([Put(Record(Key(f"run/{n}", "x"), 1, b"{}"), expect=0) for n in some])
        self.now, self.then = self.records(), {record.key: record for record in then.records()}
        self.tables = Tables(then)
        self.calls, self.cut, self.reached = 0, cut, reached
        self.lines: list[str] = []

    def records(self) -> dict[Key, Record]:
        return {record.key: record for record in self.live.records() if record.key not in restore.OURS}

    @property
    def mark(self) -> Restoration | None:
        return nouns.find(self.live, Restoration, RESTORATION)

    def run(self, *, agrees: bool = True) -> restore.RestoreReport:
        services = {"dynamodb": self.tables, "lambda": self.functions}
        aws = restore.Aws(
            clients=lambda service: Watched(lambda: services[service], self),
            store=self.store,
            clock=self.clock,
            sleep=lambda _: None,
        )
        self.clock.at += MINUTE
        return restore.bring_back(STAGE, TABLE, AT, aws, self.lines.append, lambda _: agrees)

    def store(self, table: str) -> Any:
        """The copy isn't there yet when it is named."""
        return Watched(lambda: self.live if table == TABLE else self.tables.there[table], self)

    def called(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        if 0 < self.cut < self.calls or (self.calls == self.cut and not self.reached):
            raise Killed
        done = call()
        self.check()
        if self.calls == self.cut:
            raise Killed
        return done

    def check(self) -> None:
        """Nothing ever acts on records that aren't whole, or are older than what there is."""
        found, mark = self.records(), self.mark
        assert nouns.find(self.live, Fence, FENCE) is not None, "it stays"
        if found == self.now:
            return
        assert mark is not None and mark.looking(self.clock.now() + (0 if mark.whole else 9 * HOUR))
        runs = any(number != 0 for number in self.functions.reserved.values())
        assert not runs or (found == self.then and mark.whole)
        assert all(self.functions.replaced.values()), "no process knows the records of before"

    def check_done(self) -> None:
        assert self.records() == self.then and self.functions.reserved == self.before and not self.tables.there
        mark = self.mark
        assert mark is not None and (mark.at, mark.whole) == (self.clock.now(), True)
        assert mark.as_of == AT.timestamp() * SECOND


def test_a_stage_is_given_its_records_of_then_and_only_looks() -> None:
    trip = Trip()
    report = trip.run()
    trip.check_done()
    assert (len(report.differences), report.written, report.deleted) == (2, 1, 181)
    assert any("ends nothing for an hour" in line for line in trip.lines)
    assert trip.run().differences == [], "its table is being deleted: the next command waits for that"
    trip.check_done()


def test_after_a_no_everything_is_as_it_was() -> None:
    trip = Trip()
    with pytest.raises(command.Declined):
        trip.run(agrees=False)
    assert trip.records() == trip.now and trip.functions.reserved == trip.before
    assert trip.mark is None and not trip.tables.there


@pytest.mark.slow
@pytest.mark.parametrize("reached", [False, True], ids=["before", "after"])
def test_whichever_call_it_is_killed_at_the_same_command_finishes(reached: bool) -> None:
    whole = Trip()
    whole.run()
    assert whole.calls > 30
    for cut in range(1, whole.calls + 1):
        trip = Trip(cut, reached=reached)
        with pytest.raises(Killed):
            trip.run()
        trip.cut = 0
        trip.run()
        trip.check_done()


def test_a_half_restored_stage_stays_stopped_until_the_command_has_finished() -> None:
    trip = Trip()
    trip.run()
    writes = next(cut for cut in reversed(range(trip.calls)) if half(Trip(cut)))
    trip = Trip(writes)
    assert half(trip)
    trip.cut = 0
    with pytest.raises(command.Declined):
        trip.run(agrees=False)
    assert set(trip.functions.reserved.values()) == {0}
    assert any("stay stopped: run this command again" in line for line in trip.lines)
    with pytest.raises(Refused, match=r"Not all records .* infra.restore"):
        go_on(trip.live, trip.clock)
    trip.run()
    trip.check_done()
    assert go_on(trip.live, trip.clock) is not None


def half(trip: Trip) -> bool:
    with pytest.raises(Killed):
        trip.run()
    return trip.records() not in (trip.now, trip.then)


def test_another_tables_moment_is_refused_in_words() -> None:
    with pytest.raises(ClientError, match="TableNotFoundException"):
        restore.make_copy(Tables(MemoryStore()), "dstack-x", "dstack-x-at", AT, 1.0)


def test_the_table_has_the_records_of_then_and_no_others() -> None:
    then, live = MemoryStore(), MemoryStore()
    kept = Record(Key("run/1", "status"), 3, b"{}", ("a", "b"), None, Due("run", "run/1", 5), 9)
    for store in (then, live):
        store.commit([Put(kept, expect=0), Put(Record(Key("run/2", "status"), 1, b'{"x":1}'), expect=0)])
    live.commit([Put(Record(Key("run/2", "status"), 2, b'{"x":2}'), expect=1)])
    live.commit([Put(Record(Key(f"run/{n}", "status"), 1, b"{}"), expect=0) for n in range(10, 60)])
    live.commit([Put(Record(Key(f"run/{n}", "status"), 1, b"{}"), expect=0) for n in range(60, 140)])
    then.commit([Put(Record(Key("run/gone", "status"), 1, b"{}"), expect=0)])
    assert restore.replace(live, then) == (2, 130)
    assert live.records() == then.records()
    assert restore.replace(live, then) == (0, 0), "repeated after a lost connection, it goes on"


def test_what_differs_is_said_before_anything_is_changed() -> None:
    then, live = MemoryStore(), MemoryStore()
    old, bought, ended = b.host(0, FLEET), b.host(1, FLEET), b.host(2, FLEET)
    then.commit([nouns.put(old), nouns.put(ended)])
    live.commit([nouns.put(bought), nouns.put(old), nouns.put(ended)])
    live.commit([nouns.put(ended.with_(version=1, status=InstanceStatus.terminated))])
    then.commit([nouns.put(b.host(3, FLEET))])
    assert sorted(restore.differences(live, then)) == [
        f"instance {bought.name} ({bought.status}) will be unknown",
        f"instance {ended.name} is terminated, and was {ended.status} then",
        f"instance {b.host(3, FLEET).name} was erased since, and comes back as {ended.status}",
    ]
    assert live.get(nouns.key_of(bought)) is not None
    live.commit([Delete(nouns.key_of(old))])
    assert len(list(restore.differences(live, then))) == 4


def test_a_moment_is_a_date_with_its_time() -> None:
    assert restore.moment("2026-11-21T08:00Z") == datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert restore.moment("2026-11-21T09:00+01:00") == restore.moment("2026-11-21T08:00")
    assert restore.moment("2026-11-21T08:00").utcoffset() == timedelta(0), "wherever it is read"
    with pytest.raises(Invalid, match="isn't a time"):
        restore.moment("yesterday")

"""A stage's table gets the records of a moment, while its functions rest, after the operator has seen what differs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from chalicelib.domain.fences import Fence, FenceState
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Invalid, Refused
from chalicelib.store import nouns
from chalicelib.store.fences import decides
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Put, Record
from infra import restore
from infra.functions import reserved
from tests.world import nouns as b

FLEET = b.fleet("cloud")


class Functions:
    """Lambda: what may run, how often."""

    def __init__(self, **reserved: int | None) -> None:
        self.reserved = reserved

    def get_paginator(self, name: str) -> Any:
        assert name == "list_functions"
        return self

    def paginate(self) -> list[Any]:
        return [{"Functions": [{"FunctionName": name, "Timeout": 29}]} for name in self.reserved]

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


def test_functions_rest_meanwhile_and_run_as_before_however_it_ends() -> None:
    before = {"dstack-dev-api": 200, "dstack-dev-reconcile": None, "dstack-prod-api": 7, "dstack-dev-eu-api": 8}
    functions, waited = Functions(**before), []
    with pytest.raises(ZeroDivisionError), restore.stopped(functions, "dstack-dev-", print, waited.append):
        assert functions.reserved == {**before, "dstack-dev-api": 0, "dstack-dev-reconcile": 0}
        assert waited == [29], "a call that had begun before may still commit"
        raise ZeroDivisionError
    assert functions.reserved == before
    with pytest.raises(Refused, match="There are no functions"), restore.stopped(functions, "dstack-x-", print):
        pass


def test_functions_that_a_killed_command_had_stopped_run_again_after_the_next_one() -> None:
    functions = Functions(**{"dstack-dev-api": 0, "dstack-dev-reconcile": 0, "dstack-dev-sweep": None})
    with restore.stopped(functions, "dstack-dev-", print, lambda _: None):
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


def test_the_copy_that_a_killed_command_had_made_is_used() -> None:
    dynamo = Tables()
    for _ in range(2):
        restore.make_copy(dynamo, "dstack-dev", "dstack-dev-at", datetime.now(UTC), 1.0)
    assert dynamo.waited == ["dstack-dev-at", "dstack-dev-at"]
    with pytest.raises(ClientError, match="TableNotFoundException"):
        restore.make_copy(dynamo, "dstack-x", "dstack-x-at", datetime.now(UTC), 1.0)


class Tables:
    """DynamoDB, as far as a table is copied."""

    def __init__(self) -> None:
        self.names, self.waited = ["dstack-dev"], list[str]()

    def restore_table_to_point_in_time(self, SourceTableName: str, TargetTableName: str, RestoreDateTime: Any) -> None:
        if SourceTableName not in self.names:
            raise ClientError({"Error": {"Code": "TableNotFoundException"}}, "RestoreTableToPointInTime")
        if TargetTableName in self.names:
            raise ClientError({"Error": {"Code": "TableAlreadyExistsException"}}, "RestoreTableToPointInTime")
        self.names.append(TargetTableName)

    def get_waiter(self, name: str) -> Any:
        return self

    def wait(self, TableName: str, WaiterConfig: Any) -> None:
        self.waited.append(TableName)


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

"""A stage's table gets the records of a moment, while its functions rest, after the operator has seen what differs."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Invalid, Refused
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Put, Record
from infra import restore
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
        return [{"Functions": [{"FunctionName": name}]} for name in self.reserved]

    def get_function_concurrency(self, FunctionName: str) -> Any:
        found = self.reserved[FunctionName]
        return {} if found is None else {"ReservedConcurrentExecutions": found}

    def put_function_concurrency(self, FunctionName: str, ReservedConcurrentExecutions: int) -> None:
        self.reserved[FunctionName] = ReservedConcurrentExecutions

    def delete_function_concurrency(self, FunctionName: str) -> None:
        self.reserved[FunctionName] = None


def test_functions_rest_meanwhile_and_run_as_before_however_it_ends() -> None:
    before = {"dstack-dev-api": 200, "dstack-dev-reconcile": None, "dstack-prod-api": 7}
    functions = Functions(**before)
    with pytest.raises(ZeroDivisionError), restore.stopped(functions, "dstack-dev-", print):
        assert functions.reserved == {"dstack-dev-api": 0, "dstack-dev-reconcile": 0, "dstack-prod-api": 7}
        raise ZeroDivisionError
    assert functions.reserved == before
    with pytest.raises(Refused, match="There are no functions"), restore.stopped(functions, "dstack-x-", print):
        pass


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
    assert restore.moment("2026-11-21T08:00Z").isoformat().startswith("2026-11-21T")
    with pytest.raises(Invalid, match="isn't a time"):
        restore.moment("yesterday")

"""What a scheduled function does is what its policy allows: played on ports that note what each call needs in AWS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.planning.orphans import apart
from chalicelib.runtime.root import Root
from chalicelib.store import nouns
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.port import Change, Delete, Put
from functions import erase_unused, sweep_orphans
from tests.api.rig import fleet
from tests.api.test_fleets import add_instance, create
from tests.api.test_runs import job_of
from tests.engine.test_erasing import archive, closed, ended, later, settle
from tests.engine.test_erasing_fleets import end, end_fleet
from tests.engine.test_leftovers import dated, release
from tests.functions.test_handlers import Stack
from tests.harness.lambda_host import scheduled_event
from tests.infra.test_packaging import ROOT

Need = tuple[str, str]  # an action, and what it is done to


class Noting:
    """A port; `needs` says what a call of one of its methods needs."""

    def __init__(self, below: Any, seen: set[Need], needs: Callable[..., Iterable[Need]]) -> None:
        self._below, self._seen, self._needs = below, seen, needs

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            self._seen.update(self._needs(name, *given))
            return getattr(self._below, name)(*given, **more)

        return call


def of_table(method: str, *given: Any) -> Iterator[Need]:
    reads = {"get": "GetItem", "get_many": "BatchGetItem", "query": "Query", "due": "Query", "scan": "Scan"}
    if method in reads:
        yield f"dynamodb:{reads[method]}", "table/dstack-prod"
    elif method == "commit":
        changes: Sequence[Change] = given[0]
        for change in changes:
            kind = "PutItem" if isinstance(change, Put) else "DeleteItem" if isinstance(change, Delete) else ""
            yield f"dynamodb:{kind or 'ConditionCheckItem'}", "table/dstack-prod"


def of_bucket(method: str, *given: Any) -> Iterator[Need]:
    actions = {"get": "GetObject", "put": "PutObject", "delete": "DeleteObject"}
    if method in actions:
        names = given if method == "delete" else given[:1]
        yield from ((f"s3:{actions[method]}", f"dstack-prod-1/{name}") for name in names)
    elif method in ("list", "dated"):
        yield "s3:ListBucket", "dstack-prod-1"


def noting(stack: Stack) -> tuple[Root, set[Need]]:
    """The stack's root as the function's process has it."""
    ports, seen = stack.root.ports, set[Need]()
    blobs: Any = Noting(ports.blobs, seen, of_bucket)

    def wake(units: Iterable[str]) -> None:
        seen.add(("sqs:SendMessage", "dstack-prod-wake"))

    store: Any = Noting(ports.store, seen, of_table)
    return Root(replace(ports, store=store, blobs=blobs, logs=BlobLogs(blobs), wake=wake)), seen


def allowed(policy: str) -> set[Need]:
    statements = json.loads((ROOT / ".chalice" / "policies" / f"{policy}.json").read_text())["Statement"]
    found: set[Need] = set()
    for statement in statements:
        things = statement["Resource"]
        for thing in [things] if isinstance(things, str) else things:
            found |= {(action, thing.split(":", 5)[5]) for action in statement["Action"]}
    return {need for need in found if need[0].split(":")[0] in ("dynamodb", "s3", "sqs") and "/index/" not in need[1]}


def lacking(policy: str, seen: set[Need]) -> set[Need]:
    given = allowed(policy)
    return {need for need in seen if not any(need[0] == one and fnmatchcase(need[1], thing) for one, thing in given)}


def unused(policy: str, seen: set[Need]) -> set[Need]:
    return {
        (action, thing)
        for action, thing in allowed(policy)
        if not any(action == one and fnmatchcase(other, thing) for one, other in seen)
    }


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack.at(tmp_path)
    yield made
    made.root.close()


def test_erasing_needs_what_its_policy_allows_and_nothing_else(stack: Stack) -> None:
    rig = stack.rig
    made = create(rig, fleet())
    end(rig, add_instance(rig, made))
    end_fleet(rig, made)
    run = ended(rig)
    archive(rig)
    settle(rig, closed(rig))
    for name in (f"archives/o/{'a' * 64}-x", f"code/o/{'b' * 64}-x"):
        rig.world.plane.blobs.put(name, b"1")
    release(rig, b"old"), release(rig, b"new")
    root, seen = noting(stack)
    root.plane.logs.append(rig.project.id, job_of(rig, run.id).id, 0, [(rig.world.at, b"a line")])
    seen.clear()
    for _ in range(4):
        dated(rig)
        later(rig, 31)
        erase_unused.handler(scheduled_event("erase"), None, root)
    assert lacking("erase_unused", seen) == set()
    assert unused("erase_unused", seen) == set()


def test_a_sweep_needs_no_more_than_its_policy_allows(stack: Stack) -> None:
    """It writes what it saw first, gives back what nobody owns, and ends an instance whose machine is gone."""
    stack.ask_for_a_machine()
    stack.provision()
    found = nouns.find(stack.root.ports.store, Instance, keys.instance(stack.instance["id"]))
    assert found is not None and found.status is InstanceStatus.provisioning
    store = stack.root.ports.store
    store.commit([Delete(keys.instance(found.id))])
    root, seen = noting(stack)

    def sweep(looks: int) -> dict[str, list[str]]:
        done: dict[str, list[str]] = {}
        for _ in range(looks):
            later(stack.rig, (apart(FACTS) + SECOND) / DAY)
            done = sweep_orphans.handler(scheduled_event("sweep"), None, root)
        return done

    assert sweep(2)["given_back"]
    store.commit([nouns.put(found.with_(version=0))])
    assert sweep(2)["lost"] == [found.id]
    assert {("dynamodb:PutItem", "table/dstack-prod"), ("sqs:SendMessage", "dstack-prod-wake")} <= seen
    assert lacking("sweep_orphans", seen) == set()

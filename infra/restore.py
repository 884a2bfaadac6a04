"""`python -m infra.restore dev --at 2026-11-21T08:00Z`: a stage's records as they were at a moment of the last 35 days.

DynamoDB restores a moment into another table only. So the moment is restored beside the stage's table, what differs is
shown, and after the operator's word the stage's own table gets the records of then. Its name, indexes and stream stay,
and nothing has to be deployed.

From the first look to the last record the stage's functions don't run, because an older record must not act on what it
doesn't know: jobs go on, and agents call again. With the records comes a mark, by which the functions only look for an
hour, or until an operator's word (`domain/restorations.py`). It is the first that is written, and all processes are
replaced, so none of them misses it. A command that is cut off while it writes leaves the functions stopped; run again,
it finishes. The fence stays as it is now: a stage that decided then and has moved since must not decide again beside
another place.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson
from botocore.exceptions import ClientError

from chalicelib.domain.instants import SECOND, from_iso, iso
from chalicelib.domain.keys import FENCE, RESTORATION, STATUS, Key
from chalicelib.domain.restorations import LOOKS, Restoration
from chalicelib.engine.ports import Clock
from chalicelib.errors import Invalid, Refused
from chalicelib.runtime.clock import SystemClock
from chalicelib.runtime.migration.stage import replace_processes
from chalicelib.runtime.settings import emulator
from chalicelib.store import nouns
from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.fences import fence_of
from chalicelib.store.port import MAX_CHANGES, MAX_COMMIT, Change, Delete, Put, Record, Store
from infra import account, command, installed
from infra.account import client, explained
from infra.functions import HOLDS, reserved

SHOWN = 50  # differences
EXISTS = ("TableAlreadyExistsException", "TableInUseException")  # the latter while it is made, or deleted
KINDS = ("instance", "volume", "gateway", "run", "fleet")
OURS = (FENCE, RESTORATION)  # records that a moment doesn't bring back


@dataclass
class RestoreReport:
    stage: str
    at: str
    differences: list[str] = field(default_factory=list)
    written: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class Aws:
    """What a restoration calls."""

    clients: Callable[[str], Any] = client
    store: Callable[[str], Store] = lambda table: DynamoStore(table, endpoint=emulator())
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep
    poll: float = 2.0  # seconds between two looks at a table


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("infra.restore", "Give a stage's table the records of a moment.")
    parser.add_argument("--at", required=True, help="the moment, such as 2026-11-21T08:00Z")
    return command.run(parser.parse_args(argv), restore)


def restore(given: argparse.Namespace, say: command.Say, agree: command.Agree, aws: Aws | None = None) -> RestoreReport:
    at = moment(given.at)
    account.here(given.region, given.profile)
    with explained("read the stage's settings"):
        table = installed.settings(given.stage).table
    return bring_back(given.stage, table, at, aws or Aws(poll=given.poll), say, agree)


def bring_back(stage: str, table: str, at: datetime, aws: Aws, say: command.Say, agree: command.Agree) -> RestoreReport:
    dynamo, copy = aws.clients("dynamodb"), f"{table}-at-{at:%Y%m%dT%H%M%S}"
    report = RestoreReport(stage, at.isoformat())
    live, then = aws.store(table), aws.store(copy)
    check_decides(live, table)
    with explained("restore the moment beside the table"):
        make_copy(dynamo, table, copy, at, aws.poll)
    begun = nouns.find(live, Restoration, RESTORATION)
    pause = Pause(half_done=begun is not None and not begun.whole)
    try:
        with stopped(aws.clients("lambda"), stage, f"restored-{aws.clock.now()}", pause, say, aws.sleep):
            report.differences = list(differences(live, then))
            say("\n".join([*report.differences[:SHOWN], f"{len(report.differences)} things differ from now."]))
            if not agree(f"Give {table} its records of {at.isoformat()}?"):
                raise command.Declined("Nothing was changed.")
            pause.half_done = True
            mark(live, at, aws.clock, whole=False)
            report.written, report.deleted = replace(live, then)
            mark(live, at, aws.clock, whole=True)  # the hour begins
            pause.half_done = False
    finally:
        if not pause.half_done:  # or the next attempt would have to wait for it again
            with explained("delete the copy"):
                dynamo.delete_table(TableName=copy)
    say(f"{report.written} records are as they were then, and {report.deleted} are gone.")
    say("The stage ends nothing for an hour. See what it meets: dstack server restored --project PROJECT")
    return report


def moment(text: str) -> datetime:
    """A date without a zone is read as UTC."""
    try:
        return datetime.fromisoformat(iso(from_iso(text)))
    except ValueError as error:
        raise Invalid(f"{text!r} isn't a time.", hint="Write it as in 2026-11-21T08:00Z.") from error


def check_decides(live: Store, table: str) -> None:
    """Raises Refused for the table of a control plane that is elsewhere, or on its way."""
    fence = fence_of(live)
    if fence is not None and not fence.decides:
        raise Refused(f"{table} isn't restored: {fence.problem}", hint="Restore the place that decides instead.")


def make_copy(dynamo: Any, table: str, copy: str, at: datetime, poll: float) -> None:
    attempts = {"Delay": max(1, round(poll)), "MaxAttempts": 86_400}
    restored = {"SourceTableName": table, "TargetTableName": copy, "RestoreDateTime": at}
    try:
        dynamo.restore_table_to_point_in_time(**restored)
    except ClientError as error:  # a command that was killed has made it, or the last one is deleting it
        if error.response.get("Error", {}).get("Code") not in EXISTS:
            raise
        if _is_going(dynamo, copy):
            dynamo.get_waiter("table_not_exists").wait(TableName=copy, WaiterConfig=attempts)
            dynamo.restore_table_to_point_in_time(**restored)
    dynamo.get_waiter("table_exists").wait(TableName=copy, WaiterConfig=attempts)


def _is_going(dynamo: Any, copy: str) -> bool:
    try:
        return bool(dynamo.describe_table(TableName=copy)["Table"]["TableStatus"] == "DELETING")
    except dynamo.exceptions.ResourceNotFoundException:
        return True  # it went just now


# --- the functions ----------------------------------------------------------------------------------------------------


@dataclass
class Pause:
    half_done: bool = False  # the records are neither those of now nor those of then


@contextmanager
def stopped(
    functions: Any,
    stage: str,
    mark: str,
    pause: Pause,
    say: command.Say,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """None of the stage's functions runs meanwhile, nor a call that had begun before; afterwards each may as often as
    before, in a new process, but for those of a pause that is half done. `mark`: another than the last one's."""
    prefix = f"dstack-{stage}-"
    with explained("stop the functions"):
        pages = functions.get_paginator("list_functions").paginate()
        found = {each["FunctionName"]: each for page in pages for each in page["Functions"]}
        names = [name for name in found if name.startswith(prefix)]
        names = [name for name in names if "-" not in name.removeprefix(prefix)]  # or it is of dev-eu
        before = _concurrency(functions, names, prefix)
        if not names:
            raise Refused(f"There are no functions {prefix}….", hint="Name a stage that is deployed.")
        _check_they_look(stage, [found[name] for name in names])
    try:
        with explained("stop the functions"):
            for name in names:
                functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
            say(f"{len(names)} functions are stopped.")
            replace_processes(functions, stage, mark, sleep, say)
        yield
    finally:
        if pause.half_done:
            say("Not all records are written, so the functions stay stopped: run this command again.")
        else:
            _start(functions, before)


def _check_they_look(stage: str, found: Iterable[Mapping[str, Any]]) -> None:
    """Raises Refused for functions of a release that knows no mark: it would act on older records at once."""
    old = [each["FunctionName"] for each in found if HOLDS not in each.get("Environment", {}).get("Variables", {})]
    if old:
        raise Refused(
            f"{stage} has functions of an earlier release ({old[0]}), which would end what older records don't know.",
            hint=f"Deploy this release first: make deploy STAGE={stage}. Then run this command again.",
        )


def _concurrency(functions: Any, names: Iterable[str], prefix: str) -> dict[str, int | None]:
    """How often each function may run, None for as often as the account allows. One that may not run at all was
    stopped by a command that was killed: it gets what a deployment would give it."""
    found: dict[str, int | None] = {
        name: functions.get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions")
        for name in names
    }
    if 0 not in found.values():
        return found
    free = int(functions.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"])
    usual = reserved(free + sum(each or 0 for each in found.values()))
    return {name: usual.get(name.removeprefix(prefix)) if each == 0 else each for name, each in found.items()}


def _start(functions: Any, before: Mapping[str, int | None]) -> None:
    with explained("start the functions again"):
        for name, reserved in before.items():
            if reserved is None:
                functions.delete_function_concurrency(FunctionName=name)
            else:
                functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)


# --- records ----------------------------------------------------------------------------------------------------------


def differences(live: Store, then: Store) -> Iterator[str]:
    """What is bought, submitted or ended now and was not then."""
    old, new = _nouns(then), _nouns(live)
    for key in sorted(old.keys() | new.keys()):
        before, now = old.get(key), new.get(key)
        if before is None and now is not None:
            yield f"{_named(key, now)} ({now.get('status')}) will be unknown"
        elif before is not None and now is None:
            yield f"{_named(key, before)} was erased since, and comes back as {before.get('status')}"
        elif before is not None and now is not None and before.get("status") != now.get("status"):
            yield f"{_named(key, now)} is {now.get('status')}, and was {before.get('status')} then"


def replace(live: Store, then: Store) -> tuple[int, int]:
    """Give a table the records of another, but for our own. Returns how many were written, and deleted. May be
    repeated."""
    wanted, found = ({each.key: each for each in _all(store) if each.key not in OURS} for store in (then, live))
    put = [Put(record, expect=None) for key, record in wanted.items() if found.get(key) != record]
    gone = [Delete(key) for key in found.keys() - wanted.keys()]
    for batch in _commits([*put, *gone]):
        live.commit(batch)
    return len(put), len(gone)


def mark(live: Store, as_of: datetime, clock: Clock, *, whole: bool) -> None:
    """Have whoever acts on these records look first."""
    now = clock.now()
    made = Restoration(as_of=round(as_of.timestamp()) * SECOND, at=now, looks_until=now + LOOKS, whole=whole)
    live.commit([Put(nouns.put(made).record, expect=None)])


def _commits(changes: list[Put | Delete]) -> Iterator[list[Change]]:
    batch: list[Change] = []
    size = 0
    for change in changes:
        weight = len(change.record.body) if isinstance(change, Put) else 0
        if len(batch) == MAX_CHANGES or (batch and size + weight > MAX_COMMIT):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += weight
    if batch:
        yield batch


def _nouns(store: Store) -> dict[Key, dict[str, Any]]:
    return {
        record.key: orjson.loads(record.body)
        for record in _all(store)
        if record.key.sk == STATUS and record.key.pk.partition("/")[0] in KINDS
    }


def _named(key: Key, body: Mapping[str, Any]) -> str:
    return f"{key.pk.partition('/')[0]} {body.get('name') or key.pk.partition('/')[2]}"


def _all(store: Store) -> Iterator[Record]:
    after = None
    while page := store.scan(after):
        yield from page
        after = page[-1].key


if __name__ == "__main__":
    sys.exit(main())

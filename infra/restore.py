"""`python -m infra.restore dev --at 2026-11-21T08:00Z`: a stage's records as they were at a moment of the last 35 days.

DynamoDB restores a moment into another table only. So the moment is restored beside the stage's table, what differs is
shown, and after the operator's word the stage's own table gets the records of then. Its name, indexes and stream stay,
and nothing has to be deployed.

From the first look to the last record the stage's functions don't run, because an older record must not act on what it
doesn't know: jobs go on, and agents call again. What is listed as bought since is what sweeps will release afterwards.
The fence stays as it is now: a stage that decided then and has moved since must not decide again beside another place.
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

from chalicelib.domain.instants import from_iso, iso
from chalicelib.domain.keys import FENCE, STATUS, Key
from chalicelib.errors import Invalid, Refused
from chalicelib.runtime.settings import emulator
from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.fences import fence_of
from chalicelib.store.port import MAX_CHANGES, MAX_COMMIT, Change, Delete, Put, Record, Store
from infra import account, command, installed
from infra.account import client, explained
from infra.functions import reserved

SHOWN = 50  # differences
EXISTS = ("TableAlreadyExistsException", "ResourceInUseException")
KINDS = ("instance", "volume", "gateway", "run", "fleet")


@dataclass
class RestoreReport:
    stage: str
    at: str
    differences: list[str] = field(default_factory=list)
    written: int = 0
    deleted: int = 0


def main(argv: list[str] | None = None) -> int:
    parser = command.parser("infra.restore", "Give a stage's table the records of a moment.")
    parser.add_argument("--at", required=True, help="the moment, such as 2026-11-21T08:00Z")
    return command.run(parser.parse_args(argv), restore)


def restore(given: argparse.Namespace, say: command.Say, agree: command.Agree) -> RestoreReport:
    at = moment(given.at)
    account.here(given.region, given.profile)
    with explained("read the stage's settings"):
        found = installed.settings(given.stage)
    dynamo, copy = client("dynamodb"), f"{found.table}-at-{at:%Y%m%dT%H%M%S}"
    report = RestoreReport(given.stage, at.isoformat())
    live, then = (DynamoStore(name, endpoint=emulator()) for name in (found.table, copy))
    check_decides(live, found.table)
    with explained("restore the moment beside the table"):
        make_copy(dynamo, found.table, copy, at, given.poll)
    try:
        with stopped(client("lambda"), f"dstack-{given.stage}-", say):
            report.differences = list(differences(live, then))
            say("\n".join([*report.differences[:SHOWN], f"{len(report.differences)} things differ from now."]))
            if not agree(f"Give {found.table} its records of {at.isoformat()}, and let the stage act on them?"):
                raise command.Declined("Nothing was changed.")
            report.written, report.deleted = replace(live, then)
    finally:
        with explained("delete the copy"):
            dynamo.delete_table(TableName=copy)
    say(f"{report.written} records are as they were then, and {report.deleted} are gone.")
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
    try:
        dynamo.restore_table_to_point_in_time(SourceTableName=table, TargetTableName=copy, RestoreDateTime=at)
    except ClientError as error:  # a command that was killed has made it
        if error.response.get("Error", {}).get("Code") not in EXISTS:
            raise
    attempts = {"Delay": max(1, round(poll)), "MaxAttempts": 86_400}
    dynamo.get_waiter("table_exists").wait(TableName=copy, WaiterConfig=attempts)


@contextmanager
def stopped(
    functions: Any, prefix: str, say: command.Say, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """None of the functions with this prefix runs meanwhile, nor a call that had begun before; afterwards each may as
    often as before."""
    with explained("stop the functions"):
        pages = functions.get_paginator("list_functions").paginate()
        limits = {each["FunctionName"]: int(each.get("Timeout", 0)) for page in pages for each in page["Functions"]}
        names = (name for name in limits if name.startswith(prefix))
        limits = {name: limits[name] for name in names if "-" not in name.removeprefix(prefix)}  # or it is of dev-eu
        before = _concurrency(functions, limits, prefix)
        if not limits:
            raise Refused(f"There are no functions {prefix}….", hint="Name a stage that is deployed.")
    try:
        for name in limits:
            functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
        longest = max(limits.values())
        say(f"{len(limits)} functions are stopped. Waiting for {longest} s, the longest that a call may still take.")
        sleep(longest)
        yield
    finally:
        _start(functions, before)


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
    """Give a table the records of another, but for the fence. Returns how many were written, and deleted. May be
    repeated."""
    wanted, found = ({each.key: each for each in _all(store) if each.key != FENCE} for store in (then, live))
    put = [Put(record, expect=None) for key, record in wanted.items() if found.get(key) != record]
    gone = [Delete(key) for key in found.keys() - wanted.keys()]
    for batch in _commits([*put, *gone]):
        live.commit(batch)
    return len(put), len(gone)


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

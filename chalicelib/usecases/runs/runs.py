"""Runs: reading, listing, stopping and deleting them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.tenants import Project, User
from chalicelib.engine.read import Reader, RunRow
from chalicelib.errors import AlreadyExists, Conflict, Contended, Invalid, NotFound, Refused
from chalicelib.planning.kernel.requests import delete_run, stop_run
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.port import Delete, Store
from chalicelib.usecases import pages
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.ports import ChangePorts, RecordPorts

READ_AT_ONCE, MOST_READS = 100, 5  # of a list with a filter: runs, and how often for a page


@dataclass(frozen=True)
class RunFilter:
    """Which runs to list. `prev_*` is the last row of the previous page."""

    only_active: bool
    limit: int
    ascending: bool
    user_name: str | None
    repo_id: str | None
    prev_submitted_at: Micros | None
    prev_run_id: str | None
    statuses: frozenset[RunStatus] = frozenset()  # empty: any


# --- read -----------------------------------------------------------------------------------------------------------


def get(plane: RecordPorts, project: Project, *, name: str | None, run_id: str | None) -> RunRow:
    """A run by its id, or the latest one of a name."""
    if run_id is not None:
        found = nouns.find(plane.store, Run, keys.run(run_id))
        run = None if found is None or found.project_id != project.id else found
    elif name is not None:
        run = named(plane.store, project, name)
    else:
        raise Invalid("Give the `run_name` or the `id` of the run.")
    if run is None:
        raise NotFound(f"There is no run {(run_id or name or '')[:80]} in project {project.name}.")
    return plane.read.run_row(run)


def list_rows(plane: RecordPorts, projects: Sequence[Project], wanted: RunFilter) -> list[RunRow]:
    """A page of runs of all `projects` together, newest first unless `ascending`."""
    found = [run for project in projects for run in _list_project(plane.read, project.id, wanted, None)[0]]
    found.sort(key=_place, reverse=not wanted.ascending)
    return plane.read.run_rows(found[: wanted.limit])


def list_some(
    plane: RecordPorts, projects: Sequence[Project], wanted: RunFilter
) -> tuple[list[RunRow], tuple[Micros, str] | None]:
    """Likewise, newest first, but only so many runs are read for it: a page can have fewer than there are. Also the
    place at which the next page begins; None at the end."""
    assert not wanted.ascending, "the places of several projects are compared for the newest first"
    read = [_list_project(plane.read, project.id, wanted, MOST_READS) for project in projects]
    stops = [stop for _, stop in read if stop is not None]
    found = [run for runs, _ in read for run in runs if not stops or _place(run) >= max(stops)]
    found = sorted(found, key=_place, reverse=True)[: wanted.limit]
    full = len(found) == wanted.limit
    return plane.read.run_rows(found), _place(found[-1]) if full else max(stops, default=None)


def _place(run: Run) -> tuple[Micros, str]:
    return run.submitted_at, run.id


def _list_project(
    read: Reader, project_id: str, wanted: RunFilter, most: int | None
) -> tuple[list[Run], tuple[Micros, str] | None]:
    """A project's runs that are wanted, at least as many as the page has, if there are so many. After `most` reads also
    the last run that was read."""
    low, high = pages.bounds(wanted.prev_submitted_at, wanted.prev_run_id, ascending=wanted.ascending)
    filtered = bool(wanted.statuses) or wanted.user_name is not None or wanted.repo_id is not None
    found: list[Run] = []
    cursor: str | None = None
    reads = 0
    while len(found) < wanted.limit:
        reads += 1
        page = read.store.query(
            "gsi2" if wanted.only_active else "gsi1",
            keys.live_runs_of(project_id) if wanted.only_active else keys.runs_of(project_id),
            low=low,
            high=high,
            limit=READ_AT_ONCE if filtered else wanted.limit - len(found),
            cursor=cursor,
            reverse=not wanted.ascending,
        )
        runs = [read.parse(Run, record) for record in page.records]
        found += _chosen(read, runs, wanted)
        cursor = page.cursor
        if cursor is None:
            break
        if most is not None and reads >= most and runs and len(found) < wanted.limit:
            return found, _place(runs[-1])
    return found, None


def _chosen(read: Reader, runs: Sequence[Run], wanted: RunFilter) -> list[Run]:
    chosen = [run for run in runs if wanted.user_name in (None, run.user_name)]
    chosen = [run for run in chosen if not wanted.statuses or run.status in wanted.statuses]
    if wanted.repo_id is None:
        return chosen
    return [row.run for row in read.run_rows(chosen) if _repo_id(row) == wanted.repo_id]


def _repo_id(row: RunRow) -> str | None:
    found: str | None = orjson.loads(row.run_spec).get("repo_id")
    return found


def named(store: Store, project: Project, name: str) -> Run | None:
    return holder(store, project, name)[0]


def holder(store: Store, project: Project, name: str) -> tuple[Run | None, int]:
    """The run of that name, and the version of its pointer, on which the next claim of the name depends."""
    pointer = nouns.find_target(store, keys.run_name(project.id, name))
    if pointer is None:
        return None, 0
    run = nouns.find(store, Run, keys.run(pointer[0]))
    return None if run is None or run.deleted else run, pointer[1]


def replaced(plane: RecordPorts, run: Run, limit: int) -> list[RunRow]:
    """The ended runs whose name this one took, newest first, as far as they aren't erased."""
    found: list[RunRow] = []
    earlier = run.replaces
    while earlier and len(found) < limit and (before := nouns.find(plane.store, Run, keys.run(earlier))):
        found.append(plane.read.run_row(before))
        earlier = before.replaces
    return found


def spec_at(plane: RecordPorts, run: Run, revision: int) -> str:
    """The spec of a run at one of its revisions, as it is stored."""
    body = plane.read.run_and_body(run.id, revision)[1] if revision <= run.deployment_num else None
    if body is None:
        raise NotFound(f"The run {run.name} has no revision {revision}.", hint="See its `revisions`.")
    return body.run_spec


def taken(run: Run) -> AlreadyExists:
    return AlreadyExists(
        f"There is a run {run.name} already, and it is {run.status.value}.",
        hint="Stop it first, or choose another name.",
    )


def refuse_change(run: Run, obstacles: Sequence[str]) -> None:
    """Raises AlreadyExists if the run is live and can't be changed."""
    if run.status is RunStatus.terminating:
        raise AlreadyExists(f"There is a run {run.name} already, and it is still ending.", hint="Wait for it to end.")
    if not run.finished and obstacles:
        fields = ", ".join(name.removeprefix("configuration.") for name in obstacles)
        raise AlreadyExists(
            f"There is a run {run.name} already, it is {run.status.value}, and this can't be changed while it "
            f"runs: {fields}.",
            hint=f"Stop it first (dstack stop {run.name}) or choose another name.",
        )


def refuse_live(plane: RecordPorts, project: Project, name: str) -> None:
    """Raises AlreadyExists while a run has the name and hasn't ended."""
    current = named(plane.store, project, name)
    if current is not None and not current.finished:
        raise taken(current)


# --- stop and delete ------------------------------------------------------------------------------------------------


def stop(plane: ChangePorts, user: User, project: Project, names: Sequence[str], *, abort: bool) -> None:
    """Stops runs; finished ones stay as they are. None is stopped if one of them doesn't exist."""
    reason = RunReason.aborted_by_user if abort else RunReason.stopped_by_user
    for run in [_required(plane.store, project, name) for name in dict.fromkeys(names)]:
        _stop(plane, user, run, reason)


def _stop(plane: ChangePorts, user: User, run: Run | None, reason: RunReason) -> None:
    for _ in range(TRIES):
        if run is None:
            return
        now = plane.clock.now()
        try:
            plane.committer.take(NounsSnapshot(now, (run,)), stop_run(run, reason, Draft.of(user, now)))
        except Conflict:
            run = nouns.find(plane.store, Run, keys.run(run.id))
            continue
        return
    raise Contended("The run keeps changing.", hint="Try again.")


def delete(plane: ChangePorts, user: User, project: Project, names: Sequence[str]) -> None:
    """Removes finished runs from the lists. None is deleted if one of them can't be."""
    runs = [_required(plane.store, project, name) for name in dict.fromkeys(names)]
    live = [run for run in runs if not run.finished]
    if live:
        listed = ", ".join(f"{run.name} is {run.status.value}" for run in live)
        raise Refused(
            f"Only finished runs can be deleted, and {listed}.",
            hint=f"Stop first: dstack stop {' '.join(run.name for run in live)}",
        )
    for run in runs:
        _delete(plane, user, run)


def _delete(plane: ChangePorts, user: User, run: Run | None) -> None:
    for _ in range(TRIES):
        if run is None or run.deleted:
            return
        now, name = plane.clock.now(), keys.run_name(run.project_id, run.name)
        pointer = nouns.find_target(plane.store, name)
        own = pointer is not None and pointer[0] == run.id
        beside = [Delete(name, expect=pointer[1])] if pointer is not None and own else []
        try:
            plane.committer.take(NounsSnapshot(now, (run,)), delete_run(run, Draft.of(user, now)), beside)
        except Conflict:
            run = nouns.find(plane.store, Run, keys.run(run.id))
            continue
        return
    raise Contended("The run keeps changing.", hint="Try again.")


def _required(store: Store, project: Project, name: str) -> Run:
    run = named(store, project, name)
    if run is None:
        raise NotFound(f"There is no run {name[:80]} in project {project.name}.")
    return run

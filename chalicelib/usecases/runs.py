"""Runs: what there is of them, listing them, stopping and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from chalicelib.domain.events import Target
from chalicelib.domain.instants import HOUR, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.runs import Run, RunBody, RunStatus
from chalicelib.domain.tenants import Project, User
from chalicelib.errors import Bug, Conflict, Invalid, NotFound, Refused
from chalicelib.machines.run import RUN
from chalicelib.machines.table import apply as follow
from chalicelib.store import keys, nouns
from chalicelib.store.kept import Lru
from chalicelib.store.port import Change, Delete, Record, Store
from chalicelib.usecases import plans
from chalicelib.usecases.context import Plane
from chalicelib.usecases.listing import all_of
from chalicelib.usecases.trail import told

_FINISHED: Lru[RunRow] = Lru(1000)
TRIES = 5  # commits under contention before the caller hears of it


@dataclass(frozen=True)
class RunRow:
    """A run with its texts and all its jobs, in order of replica, node and submission."""

    run: Run
    run_spec: str
    job_specs: tuple[str, ...]
    jobs: tuple[Job, ...]

    def histories(self) -> list[list[Job]]:
        """The submissions of each job, oldest first, in the order of `job_specs`; none while nothing was submitted."""
        found: dict[tuple[int, int], list[Job]] = {}
        for job in self.jobs:
            found.setdefault(job.slot, []).append(job)
        return list(found.values())


@dataclass(frozen=True)
class Filter:
    """Which runs to list. `prev_*` is the last row of the page before."""

    only_active: bool = False
    limit: int = 100
    ascending: bool = False
    user_name: str | None = None
    repo_id: str | None = None
    prev_submitted_at: Micros | None = None
    prev_run_id: str | None = None


# --- read -----------------------------------------------------------------------------------------------------------


def get(plane: Plane, project: Project, *, name: str | None, run_id: str | None) -> RunRow:
    """A run by its id, or the latest one of a name."""
    if run_id is not None:
        found = nouns.find(plane.store, Run, keys.run(run_id))
        run = None if found is None or found.project_id != project.id else found
    elif name is not None:
        run = named(plane.store, project, name)
    else:
        raise Invalid("Say which run: give `run_name` or `id`.")
    if run is None:
        raise NotFound(f"There is no run {(run_id or name or '')[:80]} in project {project.name}.")
    return read_row(plane.store, run)


def list_rows(plane: Plane, projects: Sequence[Project], wanted: Filter) -> list[RunRow]:
    """A page of runs of all `projects` together, newest first unless `ascending`."""
    found: list[RunRow] = []
    for project in projects:
        found += _list_project(plane.store, project.id, wanted)
    found.sort(key=lambda row: (row.run.submitted_at, row.run.id), reverse=not wanted.ascending)
    return found[: wanted.limit]


def _list_project(store: Store, project_id: str, wanted: Filter) -> list[RunRow]:
    low, high = plans.bounds(wanted.prev_submitted_at, wanted.prev_run_id, ascending=wanted.ascending)
    found: list[RunRow] = []
    cursor: str | None = None
    while len(found) < wanted.limit:
        page = store.query(
            "gsi2" if wanted.only_active else "gsi1",
            keys.live_runs_of(project_id) if wanted.only_active else keys.runs_of(project_id),
            low=low,
            high=high,
            limit=wanted.limit - len(found),
            cursor=cursor,
            reverse=not wanted.ascending,
        )
        runs = [nouns.read(Run, record) for record in page.records]
        rows = (read_row(store, run) for run in runs if wanted.user_name in (None, run.user_name))
        found += [row for row in rows if wanted.repo_id is None or _repo_id(row) == wanted.repo_id]
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _repo_id(row: RunRow) -> str | None:
    found: str | None = orjson.loads(row.run_spec).get("repo_id")
    return found


def read_row(store: Store, run: Run) -> RunRow:
    """The run with its spec and jobs. What has finished never changes again, so it is read once and kept."""
    return (
        _FINISHED.get((run.id, run.version), lambda: _read_row(store, run)) if run.finished else _read_row(store, run)
    )


def _read_row(store: Store, run: Run) -> RunRow:
    """One query, because all of a run shares a partition."""
    bodies: list[Record] = []
    jobs: list[Record] = []
    low = keys.run_body(run.id, run.deployment_num).sk
    for record in all_of(store, "main", f"run/{run.id}", low=low, high="job0"):
        (bodies if record.key.sk.startswith("body/") else jobs).append(record)
    if not bodies or bodies[0].key.sk != low:
        raise Bug(f"run {run.id} has no spec at deployment {run.deployment_num}")
    body = nouns.read(RunBody, bodies[0])
    return RunRow(run, body.run_spec, body.job_specs, tuple(_jobs(jobs)))


def _jobs(records: Iterable[Record]) -> list[Job]:
    return [nouns.read(Job, record) for record in records]


def named(store: Store, project: Project, name: str) -> Run | None:
    return holder(store, project, name)[0]


def holder(store: Store, project: Project, name: str) -> tuple[Run | None, int]:
    """The run of that name, and the version of its pointer: who takes the name next does it under that condition."""
    pointer = nouns.find_target(store, keys.run_name(project.id, name))
    if pointer is None:
        return None, 0
    run = nouns.find(store, Run, keys.run(pointer[0]))
    return None if run is None or run.deleted else run, pointer[1]


def cost(jobs: Iterable[Job], now: Micros) -> float:
    """Dollars: the price of each place a job held, times how long it held it."""
    total = 0.0
    for job in jobs:
        if job.assignment is not None:
            held = (now if job.finished_at is None else job.finished_at) - job.assignment.assigned_at
            total += job.assignment.offer.price * max(0, held) / HOUR
    return round(total, 4)


# --- stop and delete ------------------------------------------------------------------------------------------------


def stop(plane: Plane, user: User, project: Project, names: Sequence[str], *, abort: bool) -> None:
    """Ask runs to end; what has ended already is left as it is. Nothing is stopped when one of them isn't there."""
    reason = RunReason.aborted_by_user if abort else RunReason.stopped_by_user
    for run in [_required(plane.store, project, name) for name in dict.fromkeys(names)]:
        _stop(plane, user, run, reason)


def _stop(plane: Plane, user: User, run: Run | None, reason: RunReason) -> None:
    for _ in range(TRIES):
        if (
            run is None
            or run.finished
            or (run.status is RunStatus.terminating and run.reason is not RunReason.stopped_by_user)
        ):
            return
        if run.reason is reason:
            return
        now = plane.clock.now()
        status = run.status if run.status is RunStatus.terminating else RunStatus(follow(RUN, run.status, "end"))
        ending = run.with_(status=status, reason=reason, last_processed_at=now, due_at=now)
        message = f"{run.status.value} → {status.value}: {reason.value.replace('_', ' ')}"
        event = told(message, now, run_target(run), **about(run, f"{run.id}/{run.version}", user))
        try:
            plane.store.commit([nouns.put(ending), nouns.put(event)])
        except Conflict:
            run = nouns.find(plane.store, Run, keys.run(run.id))
            continue
        plane.wake([f"run/{run.id}", f"queue/{run.project_id}"])
        return
    raise Refused("The run keeps changing.", hint="Try again.")


def delete(plane: Plane, user: User, project: Project, names: Sequence[str]) -> None:
    """Take finished runs off the lists. Nothing is deleted when one of them can't be."""
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


def _delete(plane: Plane, user: User, run: Run | None) -> None:
    for _ in range(TRIES):
        if run is None or run.deleted:
            return
        name = keys.run_name(run.project_id, run.name)
        changes: list[Change] = [nouns.put(run.with_(deleted=True, due_at=None))]
        pointer = nouns.find_target(plane.store, name)
        if pointer is not None and pointer[0] == run.id:
            changes.append(Delete(name, expect=pointer[1]))
        seed = f"{run.id}/{run.version}"
        changes.append(nouns.put(told("deleted", plane.clock.now(), run_target(run), **about(run, seed, user))))
        try:
            plane.store.commit(changes)
        except Conflict:
            run = nouns.find(plane.store, Run, keys.run(run.id))
            continue
        return
    raise Refused("The run keeps changing.", hint="Try again.")


def _required(store: Store, project: Project, name: str) -> Run:
    run = named(store, project, name)
    if run is None:
        raise NotFound(f"There is no run {name[:80]} in project {project.name}.")
    return run


# --- events ---------------------------------------------------------------------------------------------------------


def run_target(run: Run) -> Target:
    return Target(type="run", id=run.id, name=run.name)


def job_target(job: Job) -> Target:
    return Target(type="job", id=job.id, name=job.name)


def about(run: Run, seed: str, actor: User | None = None) -> dict[str, Any]:
    return {"project_id": run.project_id, "seed": seed, "actor": actor, "run_id": run.id}

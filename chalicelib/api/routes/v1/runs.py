"""Runs."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from chalicelib.api.requests import At, Id, Name
from chalicelib.api.route import Answer, Call, DryRun, asks, takes_both
from chalicelib.api.v1 import answers, cursors
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.writes import Nothing, WriteQuery, Written, act_once, headers_of
from chalicelib.api.wire.v1.runs import log_page_json, plan_json, run_json, run_path, run_summary_json
from chalicelib.domain import keys, pages
from chalicelib.domain.access_tokens import Verb
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.tenants import Project
from chalicelib.engine.read import RunRow
from chalicelib.errors import Ended, Invalid, NotFound
from chalicelib.store import nouns
from chalicelib.store.logs import LogQuery
from chalicelib.usecases.context import Plane
from chalicelib.usecases.people.visible_projects import projects_seen
from chalicelib.usecases.runs import logs, plans, runs

if TYPE_CHECKING:
    from chalicelib import contract

ENDED = frozenset({RunStatus.terminated, RunStatus.failed, RunStatus.done})  # the others have an index of their own


class RunQuery(PageQuery):
    status: Annotated[str, Field(max_length=200)] = ""  # one, or several with commas between them
    active: bool = False
    user: Name | None = None


class StopQuery(WriteQuery):
    abort: bool = False


class LogQueryParameters(PageQuery):
    job: Id | None = None
    since: At | None = None
    until: At | None = None
    newest_first: bool = False
    limit: Annotated[int, Field(ge=1, le=pages.RECORDS)] = 100


# --- lists ----------------------------------------------------------------------------------------------------------


@asks(RunQuery)
def list_all(call: Call, query: RunQuery) -> Annotated[Answer, contract.V1RunPage]:
    """Runs of the projects that the caller is in, newest first."""
    return _list(call, "/api/v1/runs", projects_seen(call.plane.store, call.actor, None, call.token), query)


@asks(RunQuery)
def list_project(call: Call, query: RunQuery) -> Annotated[Answer, contract.V1RunPage]:
    """Runs of the project, newest first."""
    return _list(call, f"/api/v1/projects/{call.tenant.name}/runs", [call.tenant], query)


def _list(call: Call, path: str, projects: Sequence[Project], query: RunQuery) -> Answer:
    listing = cursors.listing(path, call.query)
    after = query.after(listing)
    statuses = _statuses(query.status)
    wanted = runs.RunFilter(
        only_active=query.active or (bool(statuses) and statuses.isdisjoint(ENDED)),
        limit=query.limit,
        ascending=False,
        user_name=query.user,
        repo_id=None,
        prev_submitted_at=after[0],
        prev_run_id=after[1],
        statuses=statuses,
    )
    names, now = {project.id: project.name for project in projects}, call.plane.clock.now()
    rows = runs.list_rows(call.plane, projects, wanted)
    cursor = query.following(listing, rows, lambda row: (row.run.submitted_at, row.run.id))
    items = [run_summary_json(row, names[row.run.project_id], now) for row in rows]
    return answers.page(call, path, {"items": items, "next": cursor}, cursor)


def _statuses(text: str) -> frozenset[RunStatus]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in list(RunStatus)]:
        known = ", ".join(RunStatus)
        raise Invalid(f"`status`: {unknown[0][:40]!r} is not the status of a run.", hint=f"The statuses are: {known}.")
    return frozenset(map(RunStatus, names))


# --- one run --------------------------------------------------------------------------------------------------------


def get(call: Call) -> Annotated[Answer, contract.V1Run]:
    """The latest run of this name. Values of environment variables are in the caller's own runs only."""
    return answers.resource(call, _shown(call, _row(call)))


@takes_both(Written, WriteQuery)
def submit(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.V1Run, HTTPStatus.CREATED, DryRun(contract.V1RunPlan)]:
    """Submits a run. The body is its configuration; one without a `name` gets one. With `dry_run` the answer is its
    plan, with status 200."""
    spec = {"repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": body.root}
    if query.dry_run:
        return _plan(call, spec)

    def act(plane: Plane, run_id: str) -> None:
        plans.apply_plan(plane, call.actor, call.tenant, spec, None, role=call.role, new=run_id)

    acted = act_once(call, "POST", f"/api/v1/projects/{call.tenant.name}/runs", act)
    run = nouns.find(call.plane.store, Run, keys.run(acted.subject_id))
    if run is None or run.deleted:
        raise Ended("The run that this request made has been deleted.", hint="To make another, send a new key.")
    row = call.plane.read.run_row(run)
    headers = {"Location": run_path(call.tenant.name, run.name), **headers_of(acted)}
    return answers.changed(call, _shown(call, row), headers, status=HTTPStatus.CREATED)


def _plan(call: Call, spec: dict[str, Any]) -> Answer:
    plan = plans.get_plan(call.plane, call.actor, call.tenant, spec, plans.PlanView(), role=call.role)
    if plan.current is not None:
        runs.refuse_live(call.plane, call.tenant, plan.current.run.name)
    return answers.changed(call, plan_json(plan))


@takes_both(Nothing, StopQuery)
def stop(
    call: Call, body: Nothing, query: StopQuery
) -> Annotated[Answer, contract.V1Run, HTTPStatus.ACCEPTED, DryRun(contract.V1Change)]:
    """Stops the run: its jobs get time to end. `abort` ends them at once. A run that has ended stays as it is. The run
    ends after the answer, which shows it as it is then."""
    name = call.params["run_name"]
    if query.dry_run:
        return _would(call, _row(call).run, "abort" if query.abort else "stop")

    def act(plane: Plane, _: str) -> None:
        runs.stop(plane, call.actor, call.tenant, [name], abort=query.abort)

    acted = act_once(call, "POST", f"{run_path(call.tenant.name, name)}/stop", act)
    return answers.changed(call, _shown(call, _row(call)), headers_of(acted), status=HTTPStatus.ACCEPTED)


def _would(call: Call, run: Run, action: str) -> Answer:
    ended = run.finished or (run.status is RunStatus.terminating and action == "stop")
    why = f"The run is {run.status.value} already." if ended else None
    return answers.changed(call, {"action": "none" if ended else action, "why": why})


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.NO_CONTENT, DryRun(contract.V1Change)]:
    """Deletes a run that has ended."""
    name = call.params["run_name"]
    if query.dry_run:
        runs.deletable(call.plane, call.tenant, [name])
        return answers.changed(call, {"action": "delete", "why": None})

    def act(plane: Plane, _: str) -> None:
        runs.delete(plane, call.actor, call.tenant, [name])

    acted = act_once(call, "DELETE", run_path(call.tenant.name, name), act)
    return Answer(b"", status=HTTPStatus.NO_CONTENT, headers=headers_of(acted))


def _row(call: Call) -> RunRow:
    return runs.get(call.plane, call.tenant, name=call.params["run_name"], run_id=None)


def _shown(call: Call, row: RunRow) -> contract.V1Run:
    own = row.run.user_id == call.actor.id and call.may(Verb.run)
    return run_json(row, call.tenant.name, call.plane.clock.now(), env=own)


# --- its output -----------------------------------------------------------------------------------------------------


@asks(LogQueryParameters)
def read_logs(call: Call, query: LogQueryParameters) -> Annotated[Answer, contract.V1LogPage]:
    """What a job wrote, oldest first: the job with this id, or the latest submission of the run's first job."""
    name = call.params["run_name"]
    path = f"{run_path(call.tenant.name, name)}/logs"
    job_id = query.job or _first_job(_row(call), name)
    listing = cursors.listing(path, {**call.query, "job": job_id})
    span = {key: at for key, at in (("start", query.since), ("end", query.until)) if at is not None}
    token = None if query.cursor is None else _token(query.cursor, listing)
    wanted = LogQuery(**span, token=token, limit=query.limit, descending=query.newest_first)
    records, following = logs.read_log(call.plane, call.tenant, name, job_id, wanted)
    cursor = None if following is None else cursors.encode(listing, following)
    return answers.page(call, path, log_page_json(job_id, records, cursor), cursor)


def _first_job(row: RunRow, name: str) -> str:
    histories = row.histories()
    if not histories:
        raise NotFound(f"The run {name} has no job yet.", hint="It waits: `why` of the run says for what.")
    return histories[0][-1].id


def _token(cursor: str, listing: str) -> str:
    match cursors.decode(cursor, listing):
        case [str(token)]:
            return token
    raise Invalid("`cursor` isn't one that this server issued.", hint="Begin again without one.")

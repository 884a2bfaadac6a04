"""Runs."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from chalicelib.api.requests import At, Id, Name, Num, RequestBody
from chalicelib.api.route import Answer, Call, DryRun, Settling, asks, takes_both
from chalicelib.api.v1 import answers, cursors, specs
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.conditions import Condition
from chalicelib.api.v1.configurations import Written, takes_configuration
from chalicelib.api.v1.writes import Nothing, WriteQuery, changed, created, gone, still, write
from chalicelib.api.wire.v1.runs import (
    job_json,
    log_lines_json,
    metrics_json,
    plan_json,
    revision_json,
    run_json,
    run_path,
    run_spec_json,
    run_summary_json,
)
from chalicelib.api.wire.v1.specs import configuration_of
from chalicelib.domain import keys, pages
from chalicelib.domain.access_tokens import Verb
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Project
from chalicelib.engine.read import RunRow
from chalicelib.errors import NotFound, Problem, Refused, WrongQuery
from chalicelib.store import nouns
from chalicelib.store.logs import LogQuery
from chalicelib.store.sealed_specs import of_run
from chalicelib.usecases.context import Plane
from chalicelib.usecases.people.visible_projects import projects_seen
from chalicelib.usecases.rehearsals import would_write
from chalicelib.usecases.runs import logs, metrics, plans, runs

if TYPE_CHECKING:
    from chalicelib import contract

ENDED = frozenset({RunStatus.terminated, RunStatus.failed, RunStatus.done})  # the others have an index of their own


class RunQuery(PageQuery):
    status: Annotated[str, Field(max_length=200)] = ""  # one, or several with commas between them
    active: bool = False
    user: Name | None = None


class JobsQuery(PageQuery):
    latest: bool = False


class StopQuery(WriteQuery):
    abort: bool = False


class RevisionQuery(RequestBody):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=answers.PAGE)] = 20
    earlier: bool = False


class RollBackBody(RequestBody):
    model_config = ConfigDict(extra="forbid")

    revision: Annotated[int, Field(ge=0, le=999_999)]


class LogQueryParameters(PageQuery):
    job: Id | None = None
    since: At | None = None
    until: At | None = None
    newest_first: bool = False
    limit: Annotated[int, Field(ge=1, le=pages.RECORDS)] = 100


class MetricQuery(RequestBody):
    model_config = ConfigDict(extra="forbid")

    replica: Num = 0
    node: Num = 0
    since: At | None = None
    until: At | None = None
    limit: Annotated[int, Field(ge=1, le=metrics.MAX_POINTS)] = answers.PAGE


# --- lists ----------------------------------------------------------------------------------------------------------


@asks(RunQuery)
def list_all(call: Call, query: RunQuery) -> Annotated[Answer, contract.V1RunPage]:
    """Runs of the projects that the caller is in, newest first. With `status` or `user` a page can have fewer than
    `limit`, or none, and yet be followed by another: only the last one has no `next`."""
    return _list(call, projects_seen(call.plane.store, call.actor, None, call.token), query)


@asks(RunQuery)
def list_project(call: Call, query: RunQuery) -> Annotated[Answer, contract.V1RunPage]:
    """Runs of the project, newest first. With `status` or `user` a page can have fewer than `limit`, or none, and yet
    be followed by another: only the last one has no `next`."""
    return _list(call, [call.tenant], query)


def _list(call: Call, projects: Sequence[Project], query: RunQuery) -> Answer:
    after = query.after(call)
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
    rows, resume = runs.list_some(call.plane, projects, wanted)

    def item(row: RunRow) -> contract.V1RunSummary:
        return run_summary_json(row, names[row.run.project_id], now)

    cursor = None if resume is None else cursors.encode(answers.listing(call), *resume)
    return answers.linked(call, [item(row) for row in rows], cursor)


def _statuses(text: str) -> frozenset[RunStatus]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in list(RunStatus)]:
        known = ", ".join(RunStatus)
        text = f"{unknown[0][:40]!r} is not the status of a run"
        raise WrongQuery([Problem(text, path="status", hint=f"the statuses are {known}", code="unknown-value")])
    return frozenset(map(RunStatus, names))


# --- one run --------------------------------------------------------------------------------------------------------


def get(call: Call) -> Annotated[Answer, contract.V1Run]:
    """The latest run of this name. Values of environment variables are in the caller's own runs only."""
    row = _row(call)
    return answers.resource(call, _shown(call, row), settling=_settling(call, row.run))


@takes_configuration
def submit(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.V1Run, HTTPStatus.CREATED, DryRun(contract.V1RunPlan)]:
    """Submits a run. The body is its configuration; one without a `name` gets one. With `dry_run` the answer is its
    plan, with status 200."""
    spec = _spec_of(specs.meant(body.root, {}))
    if query.dry_run:
        plan = _plan(call, spec)
        if plan.current is not None:
            runs.refuse_live(call.plane, call.tenant, plan.current.run.name)
        return changed(call, plan_json(plan))

    def act(plane: Plane, run_id: str) -> RunRow:
        return plans.apply_plan(plane, call.actor, call.tenant, spec, None, role=call.role, new=run_id)

    def made(run_id: str) -> RunRow:
        run = nouns.find(call.plane.store, Run, keys.run(run_id))
        if run is not None and run.deleted and runs.named(call.plane.store, call.tenant, run.name) is None:
            run = None  # deleted by somebody, and not because a later run took its name
        return call.plane.read.run_row(still(run, "run"))

    def answer(row: RunRow) -> Answer:
        path = run_path(call.tenant.name, row.run.name)
        return created(call, _shown(call, row), path, _settling(call, row.run))

    return write(call, query, "create", act, lambda done: answer(done.result or made(done.subject_id)))


def _spec_of(configuration: dict[str, Any]) -> dict[str, Any]:
    return {"repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": configuration}


def _plan(call: Call, spec: dict[str, Any]) -> plans.RunPlan:
    return plans.get_plan(call.plane, call.actor, call.tenant, spec, plans.PlanView(), role=call.role)


def get_spec(call: Call) -> Annotated[Answer, contract.Configuration]:
    """The run's configuration. Its `ETag` is that of the spec alone."""
    row = _row(call)
    return answers.resource(call, _spec(call, row), tag=_tag(row.run))


@takes_configuration
def apply(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.Configuration, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1RunPlan)]:
    """Submits the run, or changes the live one in place, where that is possible: its code stays. With `If-Match` only
    if the spec has this tag, with `If-None-Match: *` only if there is no such run."""
    name, condition = call.params["run_name"], Condition.of(call)
    configuration = specs.named(body.root, name)

    def wanted(plane: Plane) -> tuple[dict[str, Any], plans.SeenRun | None]:
        """The run's spec, and the run that it is for, if it must be this one."""
        current = runs.named(plane.store, call.tenant, name)
        condition.check(None if current is None else _tag(current))
        if current is None:
            return _spec_of(specs.meant(configuration, {})), None
        text, own = plane.read.run_row(current).run_spec, current.user_id == call.actor.id
        known = specs.stored(plane.seal, RunSpec, text, of_run(current.id), own=own)
        spec = _spec_of(specs.meant(configuration, known))
        if not current.finished:  # with its code, which isn't sent again
            spec = {**specs.raw(text), "configuration": spec["configuration"]}
        return spec, plans.SeenRun(current.id, current.deployment_num) if condition.match else None

    def act(plane: Plane, run_id: str) -> RunRow:
        spec, seen = wanted(plane)
        return plans.apply_plan(
            plane, call.actor, call.tenant, spec, seen, role=call.role, new=run_id, or_change=not condition.new
        )

    if query.dry_run:
        plan = _plan(call, wanted(call.plane)[0])
        if plan.current is not None:
            runs.refuse_change(plan.current.run, plan.obstacles)
        return changed(call, plan_json(plan, unchanged=not would_write(call.plane, act)))

    def answer(row: RunRow, made_id: str) -> Answer:
        return specs.applied(call, _spec(call, row), _tag(row.run), made=row.run.id == made_id)

    return write(
        call, query, "change", act, lambda done: answer(done.result or _row(call), done.subject_id), conditional=True
    )


@asks(JobsQuery)
def list_jobs(call: Call, query: JobsQuery) -> Annotated[Answer, contract.V1JobPage]:
    """Jobs of the run, the latest submission first: each attempt of each job, or with `latest` only the last one."""
    row = _row(call)
    chosen = [history[-1] for history in row.histories()] if query.latest else row.jobs
    rows = sorted(chosen, key=_by_submission, reverse=True)
    return answers.cut(call, query, rows, _by_submission, job_json)


def _by_submission(job: Job) -> tuple[Micros, str]:
    return job.submitted_at, job.id


@asks(RevisionQuery)
def list_revisions(call: Call, query: RevisionQuery) -> Annotated[Answer, contract.V1Revisions]:
    """The specs that the run has had, newest first. With `earlier` also the last specs of the runs that it replaced."""
    row = _row(call)
    found = [(row, body) for body in call.plane.read.run_bodies(row.run, query.limit)]
    if query.earlier:
        others = runs.replaced(call.plane, row.run, query.limit)
        found += [(other, body) for other in others for body in call.plane.read.run_bodies(other.run, 1)]
    items = [revision_json(of.run, body, of.jobs, env=_own(call, of)) for of, body in found[: query.limit]]
    return answers.resource(call, {"items": items})


@takes_both(RollBackBody, WriteQuery)
def roll_back(
    call: Call, body: RollBackBody, query: WriteQuery
) -> Annotated[Answer, contract.Configuration, HTTPStatus.OK, DryRun(contract.V1RunPlan)]:
    """Gives the live run the spec of one of its earlier revisions, with the values that it had: a new revision. What
    can't be changed while it runs is refused, as when a spec is written."""

    def wanted(plane: Plane) -> tuple[dict[str, Any], plans.SeenRun]:
        row = runs.get(plane, call.tenant, name=call.params["run_name"], run_id=None)
        if row.run.finished:
            hint = "Submit it again with its spec: `revisions` has it."
            raise Refused(f"The run {row.run.name} has ended, so it can't be rolled back.", hint=hint)
        text = runs.spec_at(plane, row.run, body.revision)
        # Its secrets stay with it, whoever asks: the run had both together, and the answer hides them from others.
        known = specs.stored(plane.seal, RunSpec, text, of_run(row.run.id), own=True)
        return {**specs.raw(row.run_spec), "configuration": known}, plans.SeenRun(row.run.id, row.run.deployment_num)

    def act(plane: Plane, _: str) -> RunRow:
        spec, seen = wanted(plane)
        return plans.apply_plan(plane, call.actor, call.tenant, spec, seen, role=call.role)

    if query.dry_run:
        plan = _plan(call, wanted(call.plane)[0])
        if plan.current is not None:
            runs.refuse_change(plan.current.run, plan.obstacles)
        row = _row(call)
        was = configuration_of(RunSpec, runs.spec_at(call.plane, row.run, body.revision), env=_own(call, row))
        return changed(call, {**plan_json(plan, unchanged=not would_write(call.plane, act)), "spec": was})

    def answer(row: RunRow) -> Answer:
        return specs.applied(call, _spec(call, row), _tag(row.run), made=False)

    return write(call, query, "change", act, lambda done: answer(done.result or _row(call)))


@takes_both(Nothing, StopQuery)
def stop(
    call: Call, body: Nothing, query: StopQuery
) -> Annotated[Answer, contract.V1Run, HTTPStatus.ACCEPTED, DryRun(contract.V1Change)]:
    """Stops the run: its jobs get time to end. `abort` ends them at once. A run that has ended stays as it is. The run
    ends after the answer, which shows it as it is then."""
    name = call.params["run_name"]

    def act(plane: Plane, _: str) -> None:
        runs.stop(plane, call.actor, call.tenant, [name], abort=query.abort)

    def answer() -> Answer:
        row = _row(call)
        return changed(call, _shown(call, row), status=HTTPStatus.ACCEPTED, settling=_settling(call, row.run))

    return write(call, query, "abort" if query.abort else "stop", act, lambda _: answer())


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.NO_CONTENT, DryRun(contract.V1Change)]:
    """Deletes a run that has ended."""
    name = call.params["run_name"]

    def act(plane: Plane, _: str) -> None:
        runs.delete(plane, call.actor, call.tenant, [name])

    return write(call, query, "delete", act, gone)


def _row(call: Call) -> RunRow:
    return runs.get(call.plane, call.tenant, name=call.params["run_name"], run_id=None)


def _shown(call: Call, row: RunRow) -> contract.V1Run:
    return run_json(row, call.tenant.name, call.plane.clock.now(), env=_own(call, row))


def _spec(call: Call, row: RunRow) -> contract.Configuration:
    return run_spec_json(row, env=_own(call, row))


def _settling(call: Call, run: Run) -> Settling | None:
    """A run is settled while it runs, while it waits for something outside, and when it has ended."""
    moves = run.status in (RunStatus.submitted, RunStatus.provisioning, RunStatus.terminating)
    return Settling(f"run/{run.id}", run_path(call.tenant.name, run.name)) if moves else None


def _own(call: Call, row: RunRow) -> bool:
    return row.run.user_id == call.actor.id and call.may(Verb.run)


def _tag(run: Run) -> str:
    return f'"{run.id}.{run.deployment_num}"'


# --- its output and use ---------------------------------------------------------------------------------------------


@asks(LogQueryParameters)
def read_logs(call: Call, query: LogQueryParameters) -> Annotated[Answer, contract.V1LogPage]:
    """What a job wrote, oldest first: the job with this id, or the latest submission of the run's first job. The pages
    that follow are of the same job, also if there is a later one meanwhile. `resume` is the cursor of what comes
    later, also at the end."""
    name = call.params["run_name"]
    filters = {name: value for name, value in call.query.items() if name != "job"}
    listing = cursors.listing(call.path, filters)
    if query.cursor is None:
        job_id, token = query.job or _first_job(_row(call), name), None
    else:  # which says of what job it is: by now the run may have a later one
        job_id, token = cursors.decode_texts(query.cursor, listing)
        if query.job not in (None, job_id):
            hint = "begin again without one"
            raise WrongQuery([Problem("it belongs to the log of another job", path="cursor", hint=hint)])
    span = {key: at for key, at in (("start", query.since), ("end", query.until)) if at is not None}
    wanted = LogQuery(**span, token=token, limit=query.limit, descending=query.newest_first)
    page = logs.read_log(call.plane, call.tenant, name, job_id, wanted)

    def cursor(token: str | None) -> str | None:
        return cursors.encode(listing, job_id, token) if token else None

    lines = log_lines_json(page.records, newest_first=query.newest_first)
    resume = None if query.newest_first else cursor(page.resume)
    return answers.linked(call, lines, cursor(page.next_token), job=job_id, resume=resume)


def _first_job(row: RunRow, name: str) -> str:
    histories = row.histories()
    if not histories:
        raise NotFound(f"The run {name} has no job yet.", hint="It waits: `why` of the run says for what.")
    return histories[0][-1].id


@asks(MetricQuery)
def read_metrics(call: Call, query: MetricQuery) -> Annotated[Answer, contract.V1Metrics]:
    """What the latest submission of a job used of its machine."""
    wanted = metrics.WantedPoints(
        run_name=call.params["run_name"],
        replica_num=query.replica,
        job_num=query.node,
        limit=query.limit,
        after=query.since,
        before=query.until,
    )
    return answers.resource(call, metrics_json(metrics.job_usage(call.plane, call.tenant, wanted)))

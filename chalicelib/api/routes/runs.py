"""Runs over HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, Names, Object, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.v1.writes import act_once
from chalicelib.api.wire.runs import MOST_OFFERS, run_json, run_plan_json
from chalicelib.domain import keys, pages
from chalicelib.domain.access_tokens import Verb
from chalicelib.domain.keyed_requests import KEY
from chalicelib.domain.runs import Run
from chalicelib.engine.read import RunRow
from chalicelib.errors import NotSupported
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.offer_lists import DEFAULT_OFFERS
from chalicelib.usecases.people.visible_projects import projects_seen
from chalicelib.usecases.runs import plans, runs

if TYPE_CHECKING:
    from chalicelib import contract


class GetRunPlanBody(RequestBody):
    run_spec: Object
    max_offers: Annotated[int, Field(ge=1, le=MOST_OFFERS)] | None = None
    reverse_offers: bool = False
    full_offers: bool = False
    unallocated_resources: bool = False
    for_offers_only: bool = False


class CurrentRun(RequestBody):
    id: Id
    deployment_num: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class RunPlanBody(RequestBody):
    run_spec: Object
    current_resource: CurrentRun | None = None


class ApplyRunBody(RequestBody):
    plan: RunPlanBody
    force: bool = False


class GetRunBody(RequestBody):
    run_name: Name | None = None
    id: Id | None = None


class ListRunsBody(RequestBody):
    project_name: Name | None = None
    repo_id: Name | None = None
    username: Name | None = None
    only_active: bool = False
    include_jobs: bool = True
    job_submissions_limit: Annotated[int, Field(ge=0, le=10)] | None = None
    prev_submitted_at: At | None = None
    prev_run_id: Id | None = None
    limit: Annotated[int, Field(ge=0, le=pages.RUNS)] = pages.RUNS
    ascending: bool = False


class StopBody(RequestBody):
    runs_names: Names
    abort: bool = False


class DeleteRunsBody(RequestBody):
    runs_names: Names


@takes(GetRunPlanBody)
def get_plan(call: Call, body: GetRunPlanBody) -> contract.RunPlan:
    """What applying the run would do, and with which offers. Nothing is stored."""
    refuse_unallocated(body.unallocated_resources)
    if body.full_offers and not body.for_offers_only:
        raise NotSupported("A run's plan shows only the share that the run takes.", hint="Leave out --full-offers.")
    view = plans.PlanView(
        body.max_offers or DEFAULT_OFFERS, body.reverse_offers, body.for_offers_only, body.full_offers
    )
    plan = plans.get_plan(call.plane, call.actor, call.tenant, body.run_spec, view, role=call.role)
    return run_plan_json(plan, call.tenant.name, call.actor.name, call.plane.clock.now())


def refuse_unallocated(requested: bool) -> None:
    if requested:
        raise NotSupported(
            "This control plane doesn't support `unallocated_resources`.", hint="Leave out --unallocated."
        )


@takes(ApplyRunBody)
def apply(call: Call, body: ApplyRunBody) -> contract.Run:
    """Submits the run, or changes the one of this name. It is refused if `current_resource` isn't what is there any
    more, unless `force` is set. With an `Idempotency-Key` the same request acts once in 24 hours, however often it is
    sent."""
    current, spec = body.plan.current_resource, body.plan.run_spec
    seen = None if body.force or current is None else plans.SeenRun(current.id, current.deployment_num)
    if KEY in call.headers:
        row = _applied_once(call, spec, seen)
    else:
        row = plans.apply_plan(call.plane, call.actor, call.tenant, spec, seen, role=call.role)
    return run_json(row, call.tenant.name, call.plane.clock.now())


def _applied_once(call: Call, spec: dict[str, Any], seen: plans.SeenRun | None) -> RunRow:
    def act(plane: Plane, run_id: str) -> RunRow:
        of = (plane, call.actor, call.tenant, spec, seen)
        return plans.apply_plan(*of, role=call.role, new=run_id, or_change=True)

    acted = act_once(call, act)
    if acted.result is not None:
        return acted.result
    if run := nouns.find(call.plane.store, Run, keys.run(acted.subject_id)):
        row = call.plane.read.run_row(run)
        return replace(row, run=run.with_(deleted=False))  # as it was answered, also if a later run has its name
    name = spec.get("run_name") or spec["configuration"].get("name")  # it was changed, and not made
    return runs.get(call.plane, call.tenant, name=name, run_id=None)


@takes(GetRunBody)
def get(call: Call, body: GetRunBody) -> contract.Run:
    """A run, by its name or its id. An access token without the verb `run` sees no values of environment variables."""
    row = runs.get(call.plane, call.tenant, name=body.run_name, run_id=body.id)
    return run_json(row, call.tenant.name, call.plane.clock.now(), env=call.may(Verb.run))


@takes(ListRunsBody)
def list_runs(call: Call, body: ListRunsBody) -> list[contract.Run]:
    """Runs of the projects that the caller is in, newest first. The next page begins after `prev_submitted_at` and
    `prev_run_id`. Values of environment variables are in the caller's own runs only."""
    names = None if body.project_name is None else (body.project_name,)
    projects = projects_seen(call.plane.store, call.actor, names, call.token)
    wanted = runs.RunFilter(
        only_active=body.only_active,
        limit=body.limit,
        ascending=body.ascending,
        user_name=body.username,
        repo_id=body.repo_id,
        prev_submitted_at=body.prev_submitted_at,
        prev_run_id=body.prev_run_id,
    )
    named = {project.id: project.name for project in projects}
    now, jobs, limit = call.plane.clock.now(), body.include_jobs, body.job_submissions_limit

    def shown(row: RunRow) -> contract.Run:
        own = row.run.user_id == call.actor.id and call.may(Verb.run)
        return run_json(row, named[row.run.project_id], now, jobs=jobs, submissions=limit, env=own)

    return [shown(row) for row in runs.list_rows(call.plane, projects, wanted)]


@takes(StopBody)
def stop(call: Call, body: StopBody) -> None:
    """Stops runs: their jobs get time to end. `abort` ends them at once."""
    runs.stop(call.plane, call.actor, call.tenant, body.runs_names, abort=body.abort)


@takes(DeleteRunsBody)
def delete(call: Call, body: DeleteRunsBody) -> None:
    """Deletes runs that have ended."""
    runs.delete(call.plane, call.actor, call.tenant, body.runs_names)

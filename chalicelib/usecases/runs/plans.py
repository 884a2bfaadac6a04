"""Planning and submitting runs.

A submission is one commit: the run, its spec, its jobs, its name and the event are written together or not at all. A
plan sent by a client is never trusted; apply computes everything again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import orjson

from chalicelib.configuration import references
from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.offers import Availability, Offer
from chalicelib.domain.runs import Run, RunBody, RunStatus, texts_of
from chalicelib.domain.services import Scale
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.engine import trace_context
from chalicelib.engine.ports import Age
from chalicelib.engine.read import RunRow
from chalicelib.errors import Conflict, Contended, NotFound, PreconditionFailed, Refused
from chalicelib.planning.jobs import jobs as planned_jobs
from chalicelib.planning.jobs import replica_groups
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.kernel.snapshot import FleetView, NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.gpu_groups import KindPrices, one_by_one
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.matching.requirements import JobRequirements, as_placed, combined, requirements_of
from chalicelib.planning.placing import cluster_plans, plan_offers
from chalicelib.planning.placing.why_not import closed_to
from chalicelib.planning.runs import field_support, schedule
from chalicelib.planning.runs.remarks import remarks
from chalicelib.planning.volumes.sites import Volumes
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.port import Change
from chalicelib.usecases import offer_lists, specs
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.people import quotas, secrets
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.ports import ChangePorts, RunPlanPorts, SealedChangePorts, SealedPorts
from chalicelib.usecases.runs import files, job_access, named_volumes, repos
from chalicelib.usecases.runs.market_offers import AskedMarket, ask_markets, offers_of
from chalicelib.usecases.runs.runs import holder, named, refuse_change, stop, taken
from chalicelib.usecases.services import service_gateways

JOBS_AT_ONCE = 30  # written by the submission itself; the run's own pass adds the others


@dataclass(frozen=True)
class JobPlan:
    """The plan of a group's nodes, which get the same offers, or of its replicas, which share a spec."""

    job_spec: JobSpec  # of the first job
    job_specs: tuple[str, ...]  # as text
    offers: tuple[Offer, ...]
    total_offers: int
    max_price: float | None
    jobs: int  # the number that it starts with
    gpus: tuple[KindPrices, ...] = ()  # if its view asks for them


@dataclass(frozen=True)
class RunPlan:
    run_spec: str
    effective_spec: str
    jobs: tuple[JobPlan, ...]
    current: RunRow | None
    action: Literal["create", "update"]
    obstacles: tuple[str, ...]  # why the current run can't be changed into this one
    replaces: tuple[str, ...]  # the replica groups that an update replaces, one replica after the other
    notes: tuple[Note, ...]
    delays: str
    isolation: tuple[str, ...]  # a line for each fleet that separates jobs by less than containers
    remarks: tuple[str, ...]  # further notes for the reader
    ages: Mapping[str, Age]  # of the offers, by backend
    asked: tuple[AskedMarket, ...]  # for it: backends without a list of offers
    quota: tuple[str, ...]  # how much of the quota is used, and whether the run has to wait for it


@dataclass(frozen=True)
class PlanView:
    """How to show a plan's offers."""

    limit: int = offer_lists.DEFAULT_OFFERS
    reverse: bool = False
    beyond_fleets: bool = False  # everything the backends have, whether or not a fleet allows it
    whole_machines: bool = False  # show existing machines whole, not the requested share of them
    gpus: bool = False  # the kinds of GPUs that backends have, in place of their offers


class _JobGroup(NamedTuple):
    """Jobs whose specs differ only in their number, so they have the same requirements."""

    specs: Sequence[JobSpec]
    requirements: JobRequirements

    @property
    def first(self) -> JobSpec:
        return self.specs[0]


@dataclass(frozen=True)
class _Draft:
    """A prepared submission, before fleets and offers are read for it."""

    raw: dict[str, Any]  # the spec as sent, with its name
    effective: dict[str, Any]  # with everything the control plane fills in
    spec: RunSpec  # the effective one
    placed: RunSpec  # the same, for placing it
    job_specs: tuple[JobSpec, ...]  # one for each job or, in a service, for each replica group
    scales: tuple[Scale, ...]  # of a service
    door: service_gateways.FoundGateway  # of a service

    @cached_property
    def groups(self) -> tuple[_JobGroup, ...]:
        """Its jobs, or the replica groups of a service."""
        return tuple(
            _JobGroup(specs, requirements_of(self.placed, specs[0])) for specs in planned_jobs.by_group(self.job_specs)
        )

    @property
    def starting(self) -> tuple[JobSpec, ...]:
        """The specs of the jobs that it starts with."""
        return replica_groups.first_replicas(self.job_specs, self.scales) if self.scales else self.job_specs

    @property
    def possible(self) -> tuple[JobSpec, ...]:
        """The specs of as many jobs as may exist at a time."""
        config = self.spec.configuration
        if not isinstance(config, ServiceConfiguration):
            return self.job_specs
        counts = replica_groups.groups_of(config).items()
        scales = [Scale(group=name, desired=count.max or 0) for name, count in counts]
        return replica_groups.first_replicas(self.job_specs, scales)

    def most(self, group: _JobGroup) -> int:
        """The greatest number of jobs of a group."""
        config = self.spec.configuration
        if not isinstance(config, ServiceConfiguration):
            return len(group.specs)
        return replica_groups.groups_of(config)[group.first.replica_group].max or 0

    @property
    def gang(self) -> bool:
        return self.job_specs[0].jobs_per_replica > 1

    @property
    def name(self) -> str:
        assert self.spec.run_name is not None, "a draft has a name"
        return self.spec.run_name


# --- plan -----------------------------------------------------------------------------------------------------------


def get_plan(
    plane: RunPlanPorts,
    user: User,
    project: Project,
    raw: dict[str, Any],
    view: PlanView,
    *,
    role: ProjectRole | None = None,
) -> RunPlan:
    """The plan of a run. `role` is the user's role in the project."""
    draft = _draft(plane, user, project, _as_any_user(raw) if view.beyond_fleets else raw, role)
    back = sealed_specs.to_client(plane.seal, RunSpec, draft.raw, project.id, user.id)
    current = named(plane.store, project, draft.name)
    views = plane.read.fleet_views(project.id)
    facts = plane.backends.facts(project.id)
    asked = ask_markets(plane, project.id, _to_buy(draft, views, view), facts)
    live, book = offers_of(asked), plane.catalog.book(project.id)
    book = book.with_answers(live) if live else book
    volumes = named_volumes.volumes_of(plane, project, draft.job_specs)
    named_volumes.refuse_missing(draft.job_specs[:1], volumes)
    named_volumes.refuse_never(draft.possible, volumes)
    if not view.beyond_fleets:
        _refuse_plain(draft, views, book)
    _refuse_large(draft)  # because it couldn't be applied
    notes: dict[Note, None] = {}
    if draft.gang and not view.beyond_fleets:
        notes.update(
            dict.fromkeys(cluster_plans.nowhere(_waiting(plane, user, project, draft), views, book, facts, volumes))
        )
    somewhere = not notes
    notes.update(dict.fromkeys(named_volumes.notes(draft.job_specs, volumes)))
    planned: list[JobPlan] = []
    for group in draft.groups:
        job, found = _job_plan(draft, group, views if somewhere else (), book, facts, view, volumes)
        planned.append(job)
        notes.update(dict.fromkeys(found if somewhere else ()))
    row = None if current is None else plane.read.run_row(current)
    obstacles = () if row is None else tuple(_obstacles(plane, user, row, draft))
    updates = row is not None and not obstacles
    return RunPlan(
        run_spec=specs.text_of(back),
        effective_spec=sealed_specs.shown(RunSpec, specs.text_of(draft.effective)),
        jobs=tuple(planned),
        current=row,
        action="update" if updates else "create",
        obstacles=obstacles,
        replaces=_replaced(plane, row, draft) if row is not None and updates else (),
        notes=tuple(notes),
        delays=plane.pace.delays(),
        isolation=tuple(plan_offers.separation(_open_to(draft, views), draft.job_specs[0])),
        remarks=tuple(
            remarks(
                draft.spec.configuration,
                [(each.job_spec, each.offers) for each in planned],
                draft.door.gateway,
                facts,
                user.limit,
            )
        ),
        ages=plane.catalog.ages(project.id),
        asked=tuple(asked),
        quota=tuple(quotas.lines(plane, user, project, views, [(each.offers, each.jobs) for each in planned])),
    )


def _as_any_user(raw: dict[str, Any]) -> dict[str, Any]:
    """Clients ask what is offered with a task that runs as root, which some containers can't. Nobody runs it."""
    configuration = raw.get("configuration")
    return {**raw, "configuration": {**configuration, "user": None}} if isinstance(configuration, dict) else raw


def _to_buy(draft: _Draft, fleets: Sequence[FleetView], view: PlanView) -> Iterator[Query]:
    """What would be bought for the run, by each fleet that could."""
    for group in draft.groups:
        if view.beyond_fleets:
            yield group.requirements.query
            continue
        for fleet in fleets:
            query = combined(group.requirements, fleet)
            if isinstance(query, Query) and closed_to(group.requirements, fleet, query) is None:
                yield query


def _open_to(draft: _Draft, views: Sequence[FleetView]) -> list[FleetView]:
    """The fleets that accept the run."""
    requirements = {group.requirements for group in draft.groups}
    return [view for view in views if any(isinstance(combined(each, view), Query) for each in requirements)]


def _job_plan(
    draft: _Draft,
    group: _JobGroup,
    views: Sequence[FleetView],
    book: OfferBook,
    facts: Mapping[str, BackendFacts],
    view: PlanView,
    volumes: Volumes,
) -> tuple[JobPlan, Sequence[Note]]:
    """The best offers of a group's jobs, how many there are, and the highest price among all of them."""
    job_spec = group.first
    requirements = plan_offers.with_sites(group.requirements, job_spec, volumes)
    offers, total, notes = plan_offers.plan_offers(
        requirements, views, book, view.limit, whole=view.whole_machines, dearest=view.reverse, facts=facts
    )
    buying = [
        view for view in views if view.spec.configuration.nodes is not None
    ]  # the others have a fixed number of hosts
    queries: list[Query] = [query for view in buying if isinstance(query := combined(requirements, view), Query)]
    gpus: Iterable[KindPrices] = ()
    if view.beyond_fleets:
        existing = [offer for offer in offers if offer.availability in (Availability.idle, Availability.busy)]
        to_buy, count = book.match(requirements.query, view.limit, dearest=view.reverse)
        offers, total, queries = (
            plan_offers.in_attempt_order(existing, to_buy),
            len(existing) + count,
            [requirements.query],
        )
        if view.gpus:
            gpus = (*one_by_one(existing), *book.gpu_kinds(requirements.query))
    highest = offer_lists.highest_price(offers)
    if total > len(offers):
        highest = max(highest or 0.0, book.dearest(queries) or 0.0)
    shown = sorted(offers, key=lambda offer: -offer.price) if view.reverse else offers
    text = sealed_specs.shown(JobSpec, job_spec.model_dump_json())
    jobs = sum(scale.desired for scale in draft.scales if scale.group == job_spec.replica_group)
    texts, count = tuple(texts_of(text, len(group.specs))), jobs if draft.scales else len(group.specs)
    return JobPlan(job_spec, texts, tuple(shown[: view.limit]), total, highest, count, tuple(gpus)), notes


def _waiting(plane: RunPlanPorts, user: User, project: Project, draft: _Draft) -> list[QueuedJob]:
    """The jobs as they would be queued if the draft were submitted now."""
    run = _run(plane, user, project, draft, draft.name)
    return [QueuedJob(_job(run, spec), run, spec, draft.placed) for spec in draft.job_specs]


def _refuse_large(draft: _Draft) -> None:
    groups = [(draft.most(group), len(group.first.model_dump_json())) for group in draft.groups]
    shown = sum(jobs * size for jobs, size in groups)
    specs.refuse_large(len(orjson.dumps(draft.effective)), sum(size for _, size in groups), shown)


def _refuse_plain(draft: _Draft, views: Sequence[FleetView], book: OfferBook) -> None:
    """Refuse a run for which only hosts without containers have room, if it must not run as a plain process."""
    for group in draft.groups:
        if found := plan_offers.only_plain(group.requirements, views, book):
            name, why = found
            raise Refused(f"{name} {why.text}.", hint=f"{why.hint[0].upper()}{why.hint[1:]}.")


def _draft(plane: RunPlanPorts, user: User, project: Project, raw: dict[str, Any], role: ProjectRole | None) -> _Draft:
    raw = sealed_specs.from_client(plane.seal, RunSpec, raw, project.id, user.id)
    spec = specs.read_run_spec(raw)
    name = spec.configuration.name if spec.run_name is None else spec.run_name
    if name is None:
        name = specs.invented_name(
            plane.random_id(), "run", lambda name: plane.store.get(keys.run_name(project.id, name)) is not None
        )
    raw = {**specs.with_texts(raw, spec), "run_name": name}
    key = spec.ssh_key_pub or user.ssh_public_key or None
    configuration = {**raw["configuration"], "priority": spec.configuration.priority or 0}
    filled = spec.with_(
        run_name=name, ssh_key_pub=key, configuration=spec.configuration.with_(priority=configuration["priority"])
    )
    effective = planned_jobs.effective(filled)
    found = [*references.misplaced(spec), *secrets.missing(plane, project, references.secrets_named(spec))]
    found += [*field_support.refusals(effective), *files.missing(plane, user, effective)]
    found += [*repos.refusals(plane, user, project, effective), *job_access.refusals(user, role, effective)]
    facts = plane.backends.facts(project.id).values()
    found += [*field_support.reservation_refusals(effective, facts), *field_support.option_refusals(effective, facts)]
    door = service_gateways.find(plane, project, effective)
    found += door.problems
    if not plane.serves and door.gateway is None:
        found += field_support.doorless(effective)
    permitted = plane.permissions.run_privileged(user, role)
    found += [] if permitted else field_support.privileged(effective)
    specs.refuse(effective, found)
    isolated = not plane.permissions.run_unisolated(user, role)
    derived = planned_jobs.job_specs(effective, images=plane.images, isolated=isolated)
    if permitted:
        derived = tuple(each if each.user is None else each.with_(user_permitted=True) for each in derived)
    sent = {**raw, "ssh_key_pub": key, "configuration": configuration}
    scales = replica_groups.first_scales(effective.configuration)
    return _Draft(raw, sent, effective, as_placed(effective, lambda: project.name), tuple(derived), scales, door)


def _obstacles(plane: SealedPorts, user: User, row: RunRow, draft: _Draft) -> list[str]:
    """Why the current run can't be changed into the draft without a new submission; empty if it can."""
    if row.run.finished or row.run.status is RunStatus.terminating:
        return [f"it is {row.run.status.value}"]
    old = _clear(plane, row)
    found = [*specs.needs_new_run(old, draft.spec), *job_access.obstacles(user, row.run, old)]
    replaced = _replaced(plane, row, draft) if not found and any(not job.finished for job in row.jobs) else ()
    job_specs = [spec for spec in draft.job_specs if spec.replica_group in replaced]
    volumes = plane.read.volumes_named(row.run.project_id, named_volumes.names_of(job_specs))
    if name := named_volumes.exclusive(job_specs, volumes):
        fields = [name.removeprefix("configuration.") for name in specs.changed_fields(old, draft.spec)]
        return [*sorted(fields), f"its volume {name} can be used by one machine at a time, and two would need it"]
    return found


def _clear(plane: SealedPorts, row: RunRow) -> RunSpec:
    """The current spec with its secrets in clear, like those of a new spec, so that an unchanged one is no change."""
    return planned_jobs.effective(sealed_specs.run_spec(plane.seal, row.run.id, row.run_spec))


# --- apply ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeenRun:
    """The run as the client saw it when it planned."""

    id: str
    deployment_num: int = 0


def apply_plan(
    plane: RunPlanPorts,
    user: User,
    project: Project,
    raw: dict[str, Any],
    seen: SeenRun | None,
    *,
    role: ProjectRole | None = None,
    new: str = "",
    or_change: bool = False,
) -> RunRow:
    """Submit the run, or change a live run in place if possible. `seen`: the run that the plan was about, as it must
    be still; None: whatever is there. `role`: the user's in the project. `new`: the id of the run to make; no live run
    is changed then, unless `or_change`."""
    draft = _draft(plane, user, project, raw, role)
    _refuse_large(draft)
    named_volumes.refuse(draft.possible, named_volumes.volumes_of(plane, project, draft.job_specs))
    if any(job_spec.isolated or job_spec.user is not None for job_spec in draft.job_specs):
        _refuse_plain(draft, plane.read.fleet_views(project.id), plane.catalog.book(project.id))
    files.use(plane, project.id, draft.spec)
    for _ in range(TRIES):
        try:
            return _apply(plane, user, project, draft, seen, new, or_change or not new)
        except Conflict:  # somebody took the name, or the engine moved the run
            continue
    raise Contended(f"The run {draft.name} keeps changing.", hint="Try again.")


def _apply(
    plane: RunPlanPorts, user: User, project: Project, draft: _Draft, seen: SeenRun | None, new: str, changes: bool
) -> RunRow:
    current, version = holder(plane.store, project, draft.name)
    if seen is not None:
        _check_seen(current, seen, draft.name)
    if current is None or current.finished:
        return _submit(plane, user, project, draft, current, version, new or plane.random_id())
    row = plane.read.run_row(current)
    if not changes and current.status is not RunStatus.terminating:
        raise taken(current)
    refuse_change(current, _obstacles(plane, user, row, draft))
    return _update(plane, user, project, draft, row)


def _check_seen(current: Run | None, seen: SeenRun, name: str) -> None:
    if current is not None and (current.id, current.deployment_num) == (seen.id, seen.deployment_num):
        return
    what = "was deleted" if current is None else "was resubmitted or changed"
    raise PreconditionFailed(
        f"The run {name} {what} since this plan was made.", hint="Plan it again, or apply with --force."
    )


def _submit(
    plane: RunPlanPorts, user: User, project: Project, draft: _Draft, finished: Run | None, version: int, run_id: str
) -> RunRow:
    """A new run that takes over the name from `finished`, if any. `version` is the name's pointer's."""
    run = _run(plane, user, project, draft, run_id).with_(replaces="" if finished is None else finished.id)
    now, body = run.submitted_at, _body(plane, run, draft)
    begun = draft.starting[:JOBS_AT_ONCE] if run.status is RunStatus.submitted else ()
    jobs = tuple(_job(run, spec) for spec in begun)
    changes = Draft.of(user, now)
    for noun in (run, body, *jobs, *((finished.with_(deleted=True, deleted_at=now, due_at=None),) if finished else ())):
        changes.save(noun)
    for noun in (run, *jobs):
        changes.record(EventType.created, noun)
    changes.wake(f"queue/{project.id}", f"run/{run.id}")
    name = nouns.pointer(keys.run_name(project.id, draft.name), run.id, version=version)
    beside: list[Change] = [name, *service_gateways.held(plane, draft.door), *trace_context.kept(run, plane.traces)]
    beside += job_access.granted(plane, project, run) if draft.spec.configuration.dstack else ()
    plane.committer.take(NounsSnapshot(now, () if finished is None else (finished,)), changes.plan(), beside)
    _stop_if_deleted(plane, user, project, run)
    replicas = (body.replica_text(job.replica_group, job.replica_num) for job in jobs)
    return RunRow(run, body.run_spec, tuple(replicas) if body.groups else body.job_texts(), jobs)


def _stop_if_deleted(plane: ChangePorts, user: User, project: Project, run: Run) -> None:
    """Stop the run if its project was deleted meanwhile. The project isn't a condition of a run's commit, because each
    run would pay for it. A deletion looks for runs after its commit, and a submission for the project after its own, so
    one of them sees the other. If the call ends in between, closing the project ends the run."""
    try:
        undeleted(plane.store, project)
    except NotFound:
        stop(plane, user, project, [run.name], abort=False)
        raise


def _run(plane: RunPlanPorts, user: User, project: Project, draft: _Draft, run_id: str) -> Run:
    now = plane.clock.now()
    planned = schedule.schedule_of(draft.spec)
    starts = None if planned is None else schedule.next_start(planned, now)
    asleep = bool(draft.scales) and not draft.starting
    waits = schedule.waiting_text(starts) if starts is not None else ""
    if asleep and not waits and isinstance(config := draft.spec.configuration, ServiceConfiguration):
        waits = replica_groups.without(config)
    return Run(
        id=run_id,
        project_id=project.id,
        user_id=user.id,
        user_name=user.name,
        name=draft.name,
        limit=user.limit,
        priority=draft.spec.configuration.priority or 0,
        submitted_at=now,
        last_processed_at=now,
        status=RunStatus.pending if waits else RunStatus.submitted,
        message=waits,
        resume_at=starts,
        scales=draft.scales,
        gateway_id=draft.door.route.gateway_id,
        url=draft.door.route.url,
        due_at=starts or now + round(plane.pace.recheck * SECOND),  # unless its first jobs have a place by then
    )


def _body(plane: SealedPorts, run: Run, draft: _Draft) -> RunBody:
    groups, context = draft.groups, sealed_specs.of_run(run.id)
    texts = tuple(
        sealed_specs.sealed_text(plane.seal, JobSpec, group.first.model_dump_json(), context) for group in groups
    )
    nodes = tuple(len(group.specs) for group in groups) if len(draft.job_specs) > len(groups) else ()
    names = tuple(scale.group for scale in draft.scales)
    stored = _stored(plane, run.id, draft, texts)
    return RunBody(run_id=run.id, run_spec=stored, job_specs=texts, nodes=nodes, groups=names)


def _stored(plane: SealedPorts, run_id: str, draft: _Draft, job_specs: Iterable[str]) -> str:
    raw = sealed_specs.sealed(plane.seal, RunSpec, draft.effective, sealed_specs.of_run(run_id))
    return specs.text_of(raw, job_specs)


def _job(run: Run, spec: JobSpec) -> Job:
    return Job(
        id=derive(run.id, "job", spec.replica_num, spec.job_num, 0),
        run_id=run.id,
        run_name=run.name,
        project_id=run.project_id,
        replica_num=spec.replica_num,
        job_num=spec.job_num,
        replica_group=spec.replica_group,
        priority=run.priority,
        submitted_at=run.submitted_at,
        last_processed_at=run.submitted_at,
    )


def _update(plane: SealedChangePorts, user: User, project: Project, draft: _Draft, row: RunRow) -> RunRow:
    """Write the next deployment of a live run: its spec, and the priority of its waiting jobs. The run's pass then
    decides about the replicas of a service."""
    changed = specs.changed_fields(_clear(plane, row), draft.spec)
    route = _next_route(row.run, draft, changed)
    if route != service_gateways.route_of(row.run):
        changed = sorted({*changed, "configuration.gateway"})
    if not changed:
        undeleted(plane.store, project)  # unless it was just submitted: then its submission stops it
        return row
    now, priority = plane.clock.now(), draft.spec.configuration.priority or 0
    run = row.run.with_(
        deployment_num=row.run.deployment_num + 1,
        priority=priority,
        changed_by=user.name,
        limit=user.limit,
        last_processed_at=now,
        scales=replica_groups.next_scales(draft.spec.configuration, row.run.scales),
        gateway_id=route.gateway_id,
        url=route.url,
    )
    old = plane.read.run_body(run.id, row.run.deployment_num)
    body = _next_body(plane, run, draft, old).with_(applied_at=now, applied_by=user.name)
    waiting = [job for job in row.jobs if job.status is JobStatus.submitted and job.priority != priority]
    moved = {job.id: job.with_(priority=priority) for job in waiting}
    change = Draft.of(user, now)
    for noun in (run, body, *moved.values()):
        change.save(noun)
    change.record(EventType.changed, run, fields=tuple(name.removeprefix("configuration.") for name in sorted(changed)))
    change.wake(f"queue/{project.id}", f"run/{run.id}")
    beside = service_gateways.held(plane, draft.door) if route == draft.door.route else []
    plane.committer.take(NounsSnapshot(now, (row.run, *row.jobs)), change.plan(), beside)
    return RunRow(run, body.run_spec, row.job_specs, tuple(moved.get(job.id, job) for job in row.jobs))


def _next_route(run: Run, draft: _Draft, changed: Sequence[str]) -> service_gateways.ServiceRoute:
    """The run's gateway and address. A change of the project's default gateway doesn't move existing services."""
    moves = "configuration.gateway" in changed or run.gateway_id == draft.door.route.gateway_id
    return draft.door.route if moves else service_gateways.route_of(run)


def _next_body(plane: SealedPorts, run: Run, draft: _Draft, old: RunBody) -> RunBody:
    """The body of the next deployment. Specs of tasks' jobs stay as they are, and so do specs of a service's groups
    that haven't changed, sealed secrets included: replicas whose spec has the same text needn't be replaced."""
    if not draft.scales:
        text = _stored(plane, run.id, draft, old.job_specs)
        return old.with_(deployment_num=run.deployment_num, run_spec=text, version=0)
    body, known = _body(plane, run, draft), dict(zip(old.groups, _opened(plane, run.id, old), strict=True))
    texts = tuple(
        old.job_specs[old.groups.index(spec.replica_group)] if known.get(spec.replica_group) == spec else text
        for spec, text in zip(draft.job_specs, body.job_specs, strict=True)
    )
    return body.with_(deployment_num=run.deployment_num, job_specs=texts)


def _replaced(plane: SealedPorts, row: RunRow, draft: _Draft) -> tuple[str, ...]:
    """The groups of a service whose replicas have to be replaced."""
    if not draft.scales:
        return ()
    old = plane.read.run_body(row.run.id, row.run.deployment_num)
    known = dict(zip(old.groups, _opened(plane, row.run.id, old), strict=True))
    return tuple(spec.replica_group for spec in draft.job_specs if known.get(spec.replica_group, spec) != spec)


def _opened(plane: SealedPorts, run_id: str, body: RunBody) -> list[JobSpec]:
    """The specs of jobs with their secrets in clear, for comparison."""
    of = sealed_specs.of_run(run_id)
    raws = (sealed_specs.opened(plane.seal, JobSpec, orjson.loads(text), of) for text in body.job_specs)
    return [JobSpec.model_validate(raw) for raw in raws]

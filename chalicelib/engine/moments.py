"""What a project looked like at an instant: stored moments, and the history from the last of them on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros, sortable
from chalicelib.domain.jobs import Job
from chalicelib.domain.moments import (
    EVERY,
    RENEWED,
    FleetThen,
    InstanceThen,
    JobThen,
    Moment,
    MomentPart,
    RunThen,
    State,
)
from chalicelib.domain.runs import Run
from chalicelib.engine.ports import Clock
from chalicelib.engine.read import Reader
from chalicelib.store import nouns
from chalicelib.store.history import LATE, SPAN, events_in
from chalicelib.store.listing import all_of


def store_moment(read: Reader, clock: Clock, project_id: str) -> bool:
    """Store how the project looks, if it is time and something has happened."""
    now = clock.now()
    last, at = newest(read, project_id, now), now - LATE
    if last is not None and at < last.at + EVERY:
        return False
    if last is None:
        at, state = now, present(read, project_id, now)
    elif at >= last.at + RENEWED or _happened(read, project_id, last.at):
        state = state_of(read, last).after(events_between(read, project_id, last.at, at)).without_old(at)
        state = _completed(read, state)
    else:
        return False
    moment, parts = Moment.of(project_id, at, state)
    for part in parts:  # one by one: a transaction of DynamoDB has 4 MiB
        read.store.commit([nouns.put(part)])
    read.store.commit([nouns.put(moment)])
    return True


def newest(read: Reader, project_id: str, at: Micros) -> Moment | None:
    """The last moment that was stored for this instant or an earlier one."""
    place = keys.moment(project_id, at + 1)
    found = read.store.query("main", place.pk, high=place.sk, limit=1, reverse=True).records
    return nouns.read(Moment, found[0]) if found else None


def state_of(read: Reader, moment: Moment) -> State:
    wanted = [keys.moment_part(moment.project_id, moment.at, number) for number in range(moment.parts)]
    parts = [read.find(MomentPart, key) for key in wanted]
    return moment.state(part for part in parts if part is not None)


def _happened(read: Reader, project_id: str, since: Micros) -> bool:
    return bool(read.store.query("main", keys.events_of(project_id), low=sortable(since + 1), limit=1).records)


def events_between(read: Reader, project_id: str, since: Micros, until: Micros) -> Iterator[Event]:
    """Those after `since`, and up to `until`, in order."""
    low, high = sortable(max(0, since - SPAN)), sortable(until + 1)
    held: list[Event] = []  # a later record may have an event that precedes them
    for record in all_of(read.store, "main", keys.events_of(project_id), low=low, high=high):
        ready = [event for event in held if event.at < keys.event_at(record.key)]
        held = [event for event in held if event.at >= keys.event_at(record.key)]
        yield from ready
        held += [event for event in events_in(record) if since < event.at <= until]
        held.sort(key=attrgetter("at"))
    yield from held


# --- as it is now -----------------------------------------------------------------------------------------------------


def present(read: Reader, project_id: str, now: Micros) -> State:
    """The state as it is, for a project of which no moment is stored."""
    live = [read.parse(Run, each) for each in all_of(read.store, "gsi2", keys.live_runs_of(project_id))]
    latest = read.store.query("gsi1", keys.runs_of(project_id), limit=100, reverse=True).records
    runs = {run.id: run for run in (*(read.parse(Run, each) for each in latest), *live)}
    fleets = read.usable_fleets(project_id)[0]
    machines = [each for fleet in fleets for each in read.instances(fleet.id)]
    return State(
        runs={run.id: _run_then(run, read.jobs(run.id)) for run in runs.values() if not run.deleted},
        fleets={fleet.id: _fleet_then(fleet) for fleet in fleets},
        instances={each.id: instance_then(each) for each in machines if each.status is not InstanceStatus.terminated},
    ).without_old(now)


def _run_then(run: Run, jobs: Iterable[Job]) -> RunThen:
    latest = {job.name: job for job in sorted(jobs, key=attrgetter("submission_num"))}
    return RunThen(
        id=run.id,
        name=run.name,
        user=run.user_name,
        status=run.status.value,
        reason=None if run.reason is None else run.reason.value,
        submitted_at=run.submitted_at,
        finished_at=run.finished_at,
        jobs={name: _job_then(job) for name, job in latest.items()},
    )


def _job_then(job: Job) -> JobThen:
    held = None if job.finished else job.assignment
    return JobThen(
        name=job.name,
        status=job.status.value,
        reason=None if job.reason is None else job.reason.value,
        instance="" if held is None else held.instance_name,
        price=0.0 if held is None else held.offer.price,
    )


def _fleet_then(fleet: Fleet) -> FleetThen:
    return FleetThen(id=fleet.id, name=fleet.name, status=fleet.status.value)


def instance_then(instance: Instance) -> InstanceThen:
    offer, has = instance.offer, instance.offer.instance.resources
    return InstanceThen(
        id=instance.id,
        name=instance.name,
        fleet_id=instance.fleet_id,
        status=instance.status.value,
        health=instance.health,
        unreachable=instance.unreachable,
        backend=offer.backend,
        region=offer.region,
        type=offer.instance.name,
        spot=has.spot,
        gpus=len(has.gpus),
        gpu=has.gpus[0].name if has.gpus else "",
        price=offer.price,
        created_at=instance.created_at,
    )


def _completed(read: Reader, state: State) -> State:
    """With what the history doesn't say of hosts: what they have."""
    bare = [each.id for each in state.instances.values() if not each.backend]
    found = read.find_many(Instance, [keys.instance(id_) for id_ in bare])
    known = {each.id: each for each in found if each is not None}
    more = {
        id_: instance_then(known[id_]).with_(
            status=state.instances[id_].status,
            health=state.instances[id_].health,
            unreachable=state.instances[id_].unreachable,
        )
        for id_ in known
    }
    return state.with_(instances={**state.instances, **more})

"""The part of a run's pass that only services have: the desired number of replicas, the state of each, and the next
step.

`scaling` and `rollout` decide on plain values; this module makes those values from jobs and carries out the decisions.
The state of a replica follows from its last job, and from the run only where a job can't tell, because an ended job
never changes:

- A replica that was scaled down, ended by itself while it was drained, or was given up while it waited for a retry
  doesn't count; its number is free.
- A replica that is live, or waits for a retry, counts.
- A replica whose work is done pauses before its number becomes free, so that an application that ends at once isn't
  restarted without end. The run is done if all replicas are.
- A replica that failed for good ends the run. It doesn't if replicas of an older version serve, because then the new
  version is at fault; nor if it was of an older version itself, or if no replica is wanted any more.
- A replica that found no machine is retried as long as others of its group serve: fewer than wanted are better than
  none.

Groups that were removed from the configuration go once the others can take their requests: they keep as many replicas
as the others lack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain, count

from chalicelib.domain.events import EventType
from chalicelib.domain.instants import SECOND, Micros, spoken
from chalicelib.domain.job_specs import spec_of
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import ReplicaRetry, RunStatus
from chalicelib.domain.services import ROUTER, STALE, Scale, Traffic
from chalicelib.domain.specs.services import ScalingSpec, ServiceConfiguration
from chalicelib.errors import Bug
from chalicelib.machines.run import BACKOFF
from chalicelib.planning.jobs.replica_groups import groups_of, without
from chalicelib.planning.matching.requirements import merged_run
from chalicelib.planning.runs.endings import end, finish_if_gone
from chalicelib.planning.runs.replicas import (
    Replica,
    end_text,
    ended,
    refusal,
    replicas,
    resubmit,
    retire,
    save_retry,
    submit,
    was_removed,
)
from chalicelib.planning.runs.rollout import (
    DRAIN,
    UNKNOWN,
    LiveGroup,
    LiveReplica,
    Standing,
    drained_by,
    is_drained,
    ready_by,
    roll,
)
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.scaling import GroupState, scale
from chalicelib.planning.runs.status import end_run, observe_jobs, pause, suspend

RESTART_PAUSE: Micros = BACKOFF[0]  # until a replica whose work is done is started again


@dataclass
class _Group:
    """The replicas of one group, sorted by their state."""

    desired: int
    parts: dict[int, Replica] = field(default_factory=dict)
    members: list[LiveReplica] = field(default_factory=list)
    leaving: int = 0
    free: list[int] = field(default_factory=list)
    retried: list[Replica] = field(default_factory=list)
    resting: list[Job] = field(default_factory=list)  # done a moment ago
    done: list[Job] = field(default_factory=list)
    failed: list[tuple[RunReason, Job]] = field(default_factory=list)
    former: bool = False  # the configuration doesn't have it any more
    stood_in: bool = False  # replicas of such a group get its requests

    @property
    def serving(self) -> int:
        return sum(member.serves for member in self.members)

    @property
    def rolls(self) -> bool:
        """Do replicas of an older version serve?"""
        return self.stood_in or any(member.serves and not member.current for member in self.members)

    @property
    def bad(self) -> Job | None:
        """A failed job of the new version, if an older one still serves."""
        return next(iter([job for _, job in self.failed] + self.done), None) if self.rolls else None


def tend(this: RunPass) -> None:
    """Take the next step of a service that isn't ending and doesn't wait for its schedule."""
    _rescale(this)
    _renumber(this)
    groups = _sort_replicas(this)
    fatal = [each for group in groups.values() if not group.rolls for each in group.failed]
    for reason, prefix in ((RunReason.job_failed, ""), (RunReason.retry_limit_exceeded, "retries ended: ")):
        worst = next((job for verdict, job in fatal if verdict is reason), None)
        if worst is not None:
            end_run(this, reason, prefix + end_text(worst))
            return
    if _all_done(groups):
        end_run(this, RunReason.all_jobs_done, "")
        return
    numbers = _numbers(this, groups)
    for name, group in groups.items():
        _step(this, name, group, numbers)
    for part in replicas(this):
        if part.waiting is not None and part.waiting <= this.now:
            resubmit(this, part)
    _status(this, groups)


# --- how many --------------------------------------------------------------------------------------------------------


def _config(this: RunPass) -> ServiceConfiguration:
    config = this.snapshot.run_spec.configuration
    if not isinstance(config, ServiceConfiguration):
        raise Bug(f"run {this.run.name} has replicas to scale, but is a {config.type}")
    return config


def _rescale(this: RunPass) -> None:
    """Update the desired number of replicas of each group in the configuration; removed groups lose theirs."""
    before = {each.group: each for each in this.run.scales}
    rules = _rules(_config(this))
    scaled = [
        _scaled(this, before.get(name) or Scale(group=name, desired=bounds[0]), spec, bounds)
        for name, (spec, bounds) in rules.items()
    ]
    after = tuple(each for each, _ in scaled)
    for _, check_at in scaled:
        this.check_by(check_at)
    if after == this.run.scales:
        return
    for each in after:
        was = before.get(each.group)
        if was is None or was.desired != each.desired or (each.stale and not was.stale):
            group = f"group {each.group}: " if len(after) > 1 else ""
            counts = {"before": str(was.desired if was else 0), "after": str(each.desired)}
            this.draft.record(EventType.scaled, this.run, detail=group + each.why, **counts)
    this.run = this.run.with_(scales=after)
    this.draft.save(this.run)


def _rules(config: ServiceConfiguration) -> dict[str, tuple[ScalingSpec | None, tuple[int, int]]]:
    own = {group.name or str(at): group.scaling for at, group in enumerate(config.groups or ())}
    return {
        name: (own.get(name, config.scaling), (found.min or 0, found.max or 0))
        for name, found in groups_of(config).items()
    }


def _scaled(
    this: RunPass, before: Scale, spec: ScalingSpec | None, bounds: tuple[int, int]
) -> tuple[Scale, Micros | None]:
    """The desired scale of a group, and when to check again."""
    there = [job for job in this.latest() if job.replica_group == before.group and not ended(job)]
    ready = [job.ready_at for job in there if job.ready_at is not None and job.draining_at is None]
    since = max(ready) if ready and len(ready) == len(there) else None
    seen = GroupState(len(ready), sum(job.queue or 0 for job in there), since)
    scaling = scale(spec, bounds, _doors(this), before, seen, this.now)
    if spec is None:  # without a scaler, its leftover state is dropped
        at = before.at if scaling.desired == before.desired else this.now
        return Scale(group=before.group, desired=scaling.desired, at=at), scaling.check_at
    return scaling.after(before, this.now), scaling.check_at


# --- what there is ---------------------------------------------------------------------------------------------------


def _renumber(this: RunPass) -> None:
    """Count a replica whose spec is the same in the new version as one of the new version."""
    now = this.run.deployment_num
    for job in this.latest():
        if job.deployment_num != now and not ended(job):
            spec = spec_of(this.snapshot.job_specs, job)
            if spec is not None and spec == this.spec_of(job):
                this.update_job(job.with_(deployment_num=now))


def _sort_replicas(this: RunPass) -> dict[str, _Group]:
    groups = {each.group: _Group(each.desired) for each in this.run.scales}
    for part in replicas(this):
        group = groups.setdefault(part.jobs[0].replica_group, _Group(0, former=True))
        group.parts[part.num] = part
        _add(this, group, part)
    _stand_in(groups.values())
    return groups


def _stand_in(groups: Collection[_Group]) -> None:
    """Let removed groups serve in place of those that can't yet."""
    there = [group for group in groups if not group.former]
    missing = sum(max(0, group.desired - group.serving) for group in there)
    for group in groups:
        if group.former:
            group.desired = min(missing, group.serving)
            missing -= group.desired
    stood_in = any(group.desired for group in groups if group.former)
    for group in there:
        group.stood_in = stood_in


def _add(this: RunPass, group: _Group, part: Replica) -> None:
    job = part.jobs[0]
    earlier = (
        this.run.triggered_at is not None and job.submitted_at < this.run.triggered_at
    )  # its schedule's last start
    if not ended(job):
        member, checks = _member(this, job)
        group.members.append(member)
        for check_at in checks:
            this.check_by(check_at)
    elif was_removed(job) or (part.retry and part.retry.given_up) or (earlier and job.finished):
        _add_removed(group, job)
    elif group.former:
        if part.waiting is not None:
            _give_up(this, part)
        _add_removed(group, job)
    elif part.done:
        _add_done(this, group, job)
    elif part.waiting is not None:
        group.members.append(LiveReplica(part.num, Standing.submitted))
    else:
        _add_failed(this, group, part, job)


def _add_removed(group: _Group, job: Job) -> None:
    if job.finished:
        group.free.append(job.replica_num)
    else:
        group.leaving += 1


def _add_done(this: RunPass, group: _Group, job: Job) -> None:
    until = (job.finished_at or this.now) + RESTART_PAUSE
    if job.deployment_num != this.run.deployment_num or (job.finished and until <= this.now):
        _add_removed(group, job)
    else:
        group.resting.append(job)
        group.members.append(LiveReplica(job.replica_num, Standing.submitted))
        this.check_by(until)
    if job.deployment_num == this.run.deployment_num:
        group.done.append(job)


def _add_failed(this: RunPass, group: _Group, part: Replica, job: Job) -> None:
    verdict = refusal(this, part, job)
    if verdict is None or (job.reason is JobReason.failed_to_start_due_to_no_capacity and _peers_serve(this, job)):
        group.retried.append(part)
        group.members.append(LiveReplica(part.num, Standing.submitted))
    elif job.deployment_num != this.run.deployment_num:
        _add_removed(group, job)
    elif group.desired == 0:
        _give_up(this, part)
        _add_removed(group, job)
    else:
        group.failed.append((verdict, job))


def _peers_serve(this: RunPass, job: Job) -> bool:
    peers = (other for other in this.latest() if other.replica_group == job.replica_group and not ended(other))
    return any(_member(this, other)[0].serves for other in peers)


def _member(this: RunPass, job: Job) -> tuple[LiveReplica, tuple[Micros, ...]]:
    """The state of a live replica, and when it may change without a report."""
    draining = job.draining_at is not None
    drained, checks = _is_drained(this, job) if draining else (False, ())
    current = job.deployment_num == this.run.deployment_num
    return LiveReplica(job.replica_num, _standing(job), current=current, draining=draining, drained=drained), checks


def _standing(job: Job) -> Standing:
    if job.status is JobStatus.submitted:
        return Standing.submitted
    if job.status is not JobStatus.running:
        return Standing.starting
    return Standing.running if job.ready_at is None else Standing.serving


def _is_drained(this: RunPass, job: Job) -> tuple[bool, tuple[Micros, ...]]:
    """May a draining replica be stopped, because no door has anything under way there? Also returns when to check
    again."""
    since, patience = job.draining_at or this.now, _patience(this, job)
    spec = this.spec_of(job)
    if spec is not None and spec.routing == "worker" and spec.discovery is not None:
        return True, ()  # on a stop it leaves its router by itself and finishes its requests
    doors, checks = _doors_to(this, job)
    if is_drained(job.id, since, patience, doors, this.now):
        return True, checks
    return False, (*checks, drained_by(since, patience))


def _doors_to(this: RunPass, job: Job) -> tuple[list[Traffic], tuple[Micros, ...]]:
    """The doors that send requests to this replica, whether or not they have ever reported; behind a router, each ready
    router. A door that reports requests counts as well, even if it isn't listed at the moment, because its agent may
    just have restarted. Also returns when each of the latter will count as silent."""
    names = list(this.snapshot.doors)
    busy = [each for each in _doors(this) if not each.quiet and this.now - each.at <= STALE and each.door not in names]
    names += [each.door for each in busy]
    if _routes(this, job, "worker"):
        there = (other for other in this.latest() if _standing(other) is Standing.serving)
        names = [f"{ROUTER}{other.id}" for other in there if _routes(this, other, "router")]
    known = {each.door: each for each in this.snapshot.traffic}
    doors = [known.get(name) or Traffic(run_id=job.run_id, door=name, at=0) for name in names]
    return doors, tuple(each.at + STALE + 1 for each in busy)


def _doors(this: RunPass) -> list[Traffic]:
    """The doors that clients use."""
    return [each for each in this.snapshot.traffic if not each.door.startswith(ROUTER)]


def _routes(this: RunPass, job: Job, part: str) -> bool:
    spec = this.spec_of(job)
    return spec is not None and spec.routing == part


def _patience(this: RunPass, job: Job) -> Micros:
    """How long the replica may be drained."""
    longest = DRAIN if _doors(this) or _routes(this, job, "worker") else UNKNOWN
    configured = merged_run(this.snapshot.run_spec).stop_duration  # its default doesn't consider requests under way
    return min(longest, configured * SECOND) if isinstance(configured, int) else longest


def _all_done(groups: dict[str, _Group]) -> bool:
    """Has every replica just ended its work, with no other starting?"""
    resting = sum(len(group.resting) for group in groups.values())
    return resting > 0 and not any(len(group.members) > len(group.resting) for group in groups.values())


# --- the next step ---------------------------------------------------------------------------------------------------


def _numbers(this: RunPass, groups: dict[str, _Group]) -> Iterator[int]:
    """Numbers for replicas whose group has no free ones: those of removed groups, then fresh ones."""
    left = sorted(num for group in groups.values() if group.former for num in group.free)
    return chain(left, count(max((job.replica_num for job in this.jobs.values()), default=-1) + 1))


def _step(this: RunPass, name: str, group: _Group, numbers: Iterator[int]) -> None:
    bad = group.bad is not None
    steps = roll(
        LiveGroup(group.desired, group.members, group.leaving, bad, group.free, group.stood_in, former=group.former)
    )
    stopped = {*steps.stop}
    for part in group.retried:
        if part.num not in stopped:
            retire(this, part)
    for num in steps.drain:
        job = group.parts[num].jobs[0]
        this.update_job(job.with_(draining_at=this.now))
        this.check_by(drained_by(this.now, _patience(this, job)))
    out_of_date = {member.num for member in group.members if not member.current}
    for num in steps.stop:
        _stop(this, group.parts[num], "replaced by a newer version" if num in out_of_date else "")
    fresh = [next(numbers) for _ in range(steps.create - len(steps.revive))]
    for num in (*steps.revive, *fresh):
        had = [job.submission_num for job in this.jobs.values() if job.replica_num == num]
        this.run = this.run.with_(retries=tuple(each for each in this.run.retries if each.replica != num))
        submit(this, (num, 0), max(had, default=-1) + 1, name, anew=True)
    if steps.create or steps.drain or steps.stop:
        this.draft.save(this.run)  # so that the commit fails if the run has changed meanwhile


def _stop(this: RunPass, part: Replica, message: str) -> None:
    job = this.jobs[part.jobs[0].id]
    if not ended(job):
        end(this, job, JobReason.scaled_down, message)
        finish_if_gone(this, this.jobs[job.id])
    elif not part.done:
        _give_up(this, part)


def _give_up(this: RunPass, part: Replica) -> None:
    save_retry(this, ReplicaRetry(replica=part.num, attempt=0, given_up=True))


def _status(this: RunPass, groups: dict[str, _Group]) -> None:
    parts = replicas(this)
    if any(part.live for part in parts):
        if this.run.status == RunStatus.pending:
            this.run = this.draft.move_run(this.run, "resubmit", note=_wake_reason(this), resume_at=None)
        problem = ""
        for group in groups.values():
            problem, check_at = _rollout_problem(this, group)
            this.check_by(check_at)
            if problem:
                break
        if problem and problem != this.run.message:
            this.draft.record(EventType.paused, this.run, detail=problem)
        observe_jobs(this, parts, problem)
    elif all(job.finished for job in this.jobs.values()):
        if any(part.waiting is not None for part in parts):
            pause(this, parts)
        elif not any(group.resting for group in groups.values()):
            suspend(this, None, without(_config(this)))


def _wake_reason(this: RunPass) -> str:
    reasons = (scale.why for scale in this.run.scales if scale.desired)
    return "retrying" if this.run.resume_at is not None else next(reasons, "")


def _rollout_problem(this: RunPass, group: _Group) -> tuple[str, Micros | None]:
    """Why a rollout doesn't continue (empty if it does), and when to check again."""
    if group.bad is not None:
        return f"the new version doesn't work, so the one before stays: {end_text(group.bad)}", None
    if not group.rolls:
        return "", None
    checks: list[Micros] = []
    for member in group.members:
        job = group.parts[member.num].jobs[0]
        if member.current and member.standing is Standing.running and job.running_at is not None:
            spec = this.spec_of(job)
            late = ready_by(() if spec is None else spec.probes, job.running_at)
            if this.now >= late:
                after = spoken((late - job.running_at) // SECOND * SECOND)
                text = f"replica {member.num} of the new version isn't ready after {after}, so the one before stays"
                return text, min(checks, default=None)
            checks.append(late)
    return "", min(checks, default=None)

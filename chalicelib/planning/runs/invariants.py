"""Invariants of plans that change runs: an ended job never changes again, no group of a service has more than one
replica too many, and none is added to a group that doesn't exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.ranges import Range
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.planning.jobs.replica_groups import groups_of
from chalicelib.planning.kernel.lint import Known
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.snapshot import Snapshot
from chalicelib.planning.runs.snapshot import RunSnapshot


def ended_jobs(step: Step, known: Known) -> Iterator[str]:
    """An ended job never changes again."""
    for job in step.saves:
        old = known.get((Job, job.id)) if isinstance(job, Job) else None
        if isinstance(old, Job) and isinstance(job, Job) and old.finished and job.status == old.status:
            yield f"job {job.name} has ended ({old.status.value}) but changes"


def replica_counts(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    config = snapshot.run_spec.configuration if isinstance(snapshot, RunSnapshot) else None
    if not isinstance(snapshot, RunSnapshot) or not isinstance(config, ServiceConfiguration):
        return
    before = {job.id: job for job in snapshot.jobs}
    saved = [noun for step in plan.steps for noun in step.saves]
    after = {**before, **{noun.id: noun for noun in saved if isinstance(noun, Job)}}
    for job in after.values():
        was = before.get(job.id)
        if was is not None and was.draining_at is not None and job.draining_at is None:
            yield f"replica {job.name} was being drained, and would get requests again"
    came = {job.replica_group for job in after.values() if job.id not in before}
    run = next((noun for noun in reversed(saved) if isinstance(noun, Run)), snapshot.run)
    yield from _counts(
        run, groups_of(config), Counter(job.replica_group for job in after.values() if _stays(job)), came
    )


def _counts(run: Run, bounds: dict[str, Range[int]], stay: Counter[str], came: set[str]) -> Iterator[str]:
    """Of the groups that replicas came to."""
    desired = {scale.group: scale.desired for scale in run.scales}
    for group in sorted(came):
        count = desired.get(group, 0)
        if group not in bounds:
            yield f"a replica is submitted for group {group} of {run.name}, which isn't there"
        elif not bounds[group].holds(count):
            yield f"group {group} of {run.name} should have {count} replicas, which isn't within {bounds[group]}"
        elif stay[group] > count + 1:
            yield f"group {group} of {run.name} would have {stay[group]} replicas, and should have {count}"


def _stays(job: Job) -> bool:
    return not job.finished and job.status is not JobStatus.terminating and job.draining_at is None

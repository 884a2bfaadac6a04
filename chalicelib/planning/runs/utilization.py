"""Unused jobs: dev environments without a session, and runs whose GPUs do too little.

Both are measured by the host's agent. Nothing is inferred from a lack of reports: while the agent is silent, or doesn't
report a GPU, no job ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.instants import MINUTE, SECOND, Micros, spoken
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.specs.profiles import UtilizationPolicy
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.snapshot import Sample
from chalicelib.planning.runs.verdicts import CONTINUES, JobVerdict

MAX_SAMPLE_GAP: Micros = 2 * MINUTE  # a longer pause between two samples proves nothing about the time between them
STALE: Micros = 5 * MINUTE  # samples arrive with the agent's messages, at most this much later
RECHECK: Micros = MINUTE  # pause between two passes while the latest samples haven't arrived yet
LONGEST_WINDOW = 3_600  # seconds for which every sample is kept


def policy_of(this: RunPass, job: Job) -> UtilizationPolicy | None:
    spec = this.spec_of(job)
    return None if spec is None else spec.utilization_policy


def _reported(job: Job) -> bool:
    """Does it run on a host that reports?"""
    return job.status == JobStatus.running and job.disconnected_at is None


# --- sessions ---------------------------------------------------------------------------------------------------------


def inactive(this: RunPass, job: Job) -> JobVerdict:
    """Has its dev environment been without a session for too long?"""
    config = this.snapshot.run_spec.configuration
    limit = config.inactivity_duration if isinstance(config, DevEnvironmentConfiguration) else None
    if limit is None or job.connections != 0 or not _reported(job):
        return CONTINUES  # the end of its last session wakes the run, as does the first report on sessions
    since = max(job.inactive_since or 0, job.running_at or this.now)
    if this.now < since + limit * SECOND:
        return JobVerdict(check_at=since + limit * SECOND)
    passed = (this.now - since) // SECOND
    text = f"no session for {passed} s; its `inactivity_duration` is {limit} s"
    return JobVerdict(JobReason.inactivity_duration_exceeded, text, record={"inactivity_secs": passed})


# --- GPUs -------------------------------------------------------------------------------------------------------------


def underused(this: RunPass, job: Job) -> JobVerdict:
    """Has one of its GPUs done too little for a whole window?"""
    policy = policy_of(this, job)
    offer = job.assignment.offer if job.assignment else None
    if policy is None or offer is None or not _reported(job):
        return CONTINUES
    gpus = len(offer.instance.resources.gpus)
    if not gpus:
        return JobVerdict(record=_unjudged("its machine has no GPU"))
    window = policy.time_window * SECOND
    first = (job.running_at or this.now) + window
    if this.now < first:
        return JobVerdict(check_at=first)
    samples = this.snapshot.usage.get(job.id, ())
    record = _unjudged(_unreported(gpus, [sample for sample in samples if sample.at >= this.now - window]))
    if not samples or this.now - samples[-1].at > STALE:
        return JobVerdict(check_at=this.now + STALE, record=record)
    latest = samples[-1].at
    quiet = quiet_since(samples, policy.min_gpu_utilization)
    lasting = [number for number, since in enumerate(quiet) if since is not None and latest - since >= window]
    if lasting:
        text = f"GPU {lasting[0]} was below {policy.min_gpu_utilization} % for {spoken(window)} (`utilization_policy`)"
        return JobVerdict(JobReason.terminated_due_to_utilization_policy, text, record=record)
    ends = min((since for since in quiet if since is not None), default=latest) + window
    return JobVerdict(check_at=max(ends, this.now + RECHECK), record=record)


def _unreported(gpus: int, samples: Sequence[Sample]) -> str:
    """Which GPUs the policy can't judge, because their use wasn't reported for a full window; empty if it can."""
    silent = [
        number
        for number in range(gpus)
        if all(number >= len(sample.gpus) or sample.gpus[number] is None for sample in samples)
    ]
    if not silent:
        return ""
    return f"nobody reports how busy {'its GPUs are' if len(silent) == gpus else f'GPU {silent[0]} is'}"


def _unjudged(why: str) -> dict[str, str]:
    """The job field that tells people why their policy has no effect."""
    return {"unjudged": f"`utilization_policy` has nothing to judge by: {why}" if why else ""}


def quiet_since(samples: Sequence[Sample], least: float) -> list[Micros | None]:
    """For each GPU, since when it has been below `least` percent without a pause; None if it isn't now."""
    found: list[Micros | None] = []
    for number in range(max(len(sample.gpus) for sample in samples)):
        since, before = None, samples[0].at
        for sample in samples:
            busy = sample.gpus[number] if number < len(sample.gpus) else None
            if busy is None or busy >= least:
                since = None
            elif since is None or sample.at - before > MAX_SAMPLE_GAP:
                since = sample.at
            before = sample.at
        found.append(since)
    return found

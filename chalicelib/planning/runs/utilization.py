"""Jobs that nobody uses: dev environments without a session, and runs whose GPUs do too little.

Both count from what the agent of the host reports. Nothing is inferred from what it doesn't report: while it is silent,
or says nothing of a GPU, nothing ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.instants import MINUTE, SECOND, Micros, spoken
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.specs.profiles import UtilizationPolicy
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration
from chalicelib.planning.runs.run_pass import RunLook
from chalicelib.planning.runs.snapshot import Sample

HOLE: Micros = 2 * MINUTE  # between two samples: a longer pause proves nothing of the time between
STALE: Micros = 5 * MINUTE  # samples come with the agent's messages, at the latest this much later
AGAIN: Micros = MINUTE  # between two looks where the samples of the last seconds aren't there yet
LONGEST_WINDOW = 3_600  # seconds: so long every sample is kept

Verdict = tuple[JobReason, str]


def policy_of(look: RunLook, job: Job) -> UtilizationPolicy | None:
    spec = look.spec_of(job)
    return None if spec is None else spec.utilization_policy


def unused(look: RunLook, job: Job) -> Verdict | None:
    """Why a running job ends for want of use, if so; else when to look again is noted."""
    if job.status != JobStatus.running or job.disconnected_at is not None:
        return None
    return _inactive(look, job) or _underused(look, job)


# --- sessions ---------------------------------------------------------------------------------------------------------


def _inactive(look: RunLook, job: Job) -> Verdict | None:
    config = look.snapshot.run_spec.configuration
    limit = config.inactivity_duration if isinstance(config, DevEnvironmentConfiguration) else None
    if limit is None or job.connections != 0:
        return None  # the end of its last session wakes this, and so does the first word about any
    since = max(job.inactive_since or 0, job.running_at or look.now)
    if look.now < since + limit * SECOND:
        look.deadlines.append(since + limit * SECOND)
        return None
    passed = (look.now - since) // SECOND
    look.keep(look.jobs[job.id].with_(inactivity_secs=passed))
    text = f"no session for {passed} s; its `inactivity_duration` is {limit} s"
    return JobReason.inactivity_duration_exceeded, text


# --- GPUs -------------------------------------------------------------------------------------------------------------


def _underused(look: RunLook, job: Job) -> Verdict | None:
    policy = policy_of(look, job)
    offer = job.assignment.offer if job.assignment else None
    if policy is None or offer is None:
        return None
    gpus = len(offer.instance.resources.gpus)
    if not gpus:
        _say(look, job, "its machine has no GPU")
        return None
    window = policy.time_window * SECOND
    first = (job.running_at or look.now) + window
    if look.now < first:
        look.deadlines.append(first)
        return None
    samples = look.snapshot.usage.get(job.id, ())
    _say(look, job, _unreported(gpus, [sample for sample in samples if sample.at >= look.now - window]))
    if not samples or look.now - samples[-1].at > STALE:
        look.deadlines.append(look.now + STALE)
        return None
    latest = samples[-1].at
    quiet = quiet_since(samples, policy.min_gpu_utilization)
    lasting = [number for number, since in enumerate(quiet) if since is not None and latest - since >= window]
    if lasting:
        text = f"GPU {lasting[0]} was below {policy.min_gpu_utilization} % for {spoken(window)} (`utilization_policy`)"
        return JobReason.terminated_due_to_utilization_policy, text
    ends = min((since for since in quiet if since is not None), default=latest) + window
    look.deadlines.append(max(ends, look.now + AGAIN))
    return None


def _unreported(gpus: int, samples: Sequence[Sample]) -> str:
    """Which GPUs the policy can't judge, because nobody said how busy they are in a whole window; empty if it can."""
    silent = [
        number
        for number in range(gpus)
        if all(number >= len(sample.gpus) or sample.gpus[number] is None for sample in samples)
    ]
    if not silent:
        return ""
    return f"nobody reports how busy {'its GPUs are' if len(silent) == gpus else f'GPU {silent[0]} is'}"


def _say(look: RunLook, job: Job, why: str) -> None:
    """The policy goes on as before; whoever counts on it should know."""
    text = f"`utilization_policy` has nothing to judge by: {why}" if why else ""
    if look.jobs[job.id].unjudged != text:
        look.keep(look.jobs[job.id].with_(unjudged=text))


def quiet_since(samples: Sequence[Sample], least: float) -> list[Micros | None]:
    """For each GPU, since when it has been below `least` percent without a pause; None if it isn't now."""
    found: list[Micros | None] = []
    for number in range(max(len(sample.gpus) for sample in samples)):
        since, before = None, samples[0].at
        for sample in samples:
            busy = sample.gpus[number] if number < len(sample.gpus) else None
            if busy is None or busy >= least:
                since = None
            elif since is None or sample.at - before > HOLE:
                since = sample.at
            before = sample.at
        found.append(since)
    return found

"""Log bytes from an agent: each piece has its position in the job's stream, so repeats are dropped and gaps refused.

A job that exceeds its quota is ended. The excess is not kept but acknowledged as stored, so that the agent can delete
it.
"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.domain.bounds import LAST_INSTANT
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.reports import over_quota
from chalicelib.planning.transitions import Draft
from chalicelib.usecases.agent_message import LogBytes, Message
from chalicelib.usecases.context import Plane


def take_logs(
    plane: Plane, message: Message, jobs: Mapping[str, Job], draft: Draft, clock_off: Micros = 0
) -> tuple[dict[str, Job], dict[str, int]]:
    """The jobs, with any that is over its quota ended, and the stored bytes of each log that came. Can raise
    StorageFull: then nothing is acknowledged, and the agent keeps its bytes. `clock_off`: what the machine's clock is
    behind ours."""
    after, ends = dict(jobs), {}
    for chunk in message.logs:
        job = after.get(chunk.task)
        if job is not None:
            after[job.id], ends[job.id] = _take(plane, job, chunk, draft, clock_off)
    return after, ends


def _take(plane: Plane, job: Job, chunk: LogBytes, draft: Draft, clock_off: Micros) -> tuple[Job, int]:
    records = [(min(max(0, at + clock_off), LAST_INSTANT), data) for at, data in chunk.decoded()]
    last = chunk.offset + sum(len(data) for _, data in records)
    if job.reason is JobReason.log_quota_exceeded:
        return job, last
    quota = plane.limits.log_bytes_per_hour
    if over_quota(job, last, quota, draft.now):
        if job.status is JobStatus.running:
            text = f"The job wrote more than {quota / 2**20:g} MB of log in an hour."
            job = draft.end_job(job, JobReason.log_quota_exceeded, message=text, grace=0)
        return job, last
    return job, plane.logs.append(job.project_id, job.id, chunk.offset, records)

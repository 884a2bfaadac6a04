"""Log data from an agent: each piece has its position in the job's stream, so repeats are dropped and gaps refused.

A job that exceeds its quota is ended. The excess is discarded but acknowledged, so that the agent can delete it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from chalicelib.domain.bounds import LAST_INSTANT
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.log_chunks import LogChunk
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.runs.agent_reports import over_quota
from chalicelib.usecases.agent_message import AgentMessage, LogBytes
from chalicelib.usecases.context import SizeLimits

if TYPE_CHECKING:
    from chalicelib.contract.agent import Upload
    from chalicelib.store.log_uploads import Uploads
    from chalicelib.store.logs import LogStore


class UploadPorts(Protocol):
    """The ports for storing output, and its limits."""

    @property
    def logs(self) -> LogStore: ...

    @property
    def uploads(self) -> Uploads | None: ...

    @property
    def limits(self) -> SizeLimits: ...


def take_logs(
    plane: UploadPorts, message: AgentMessage, jobs: Mapping[str, Job], draft: Draft, clock_off: Micros = 0
) -> tuple[dict[str, Job], dict[str, int]]:
    """The jobs, with those over their quota ended, and the number of stored bytes of each log in the message. May raise
    StorageFull: then nothing is acknowledged, and the agent keeps its output. `clock_off`: how far the machine's clock
    is behind ours."""
    after, ends = dict(jobs), {}
    for chunk in message.logs:
        job = after.get(chunk.task)
        if job is not None:
            after[job.id], ends[job.id] = _take(plane, job, chunk, draft, clock_off)
    return after, ends


def take_chunks(
    plane: UploadPorts, message: AgentMessage, jobs: Mapping[str, Job], draft: Draft, clock_off: Micros = 0
) -> tuple[dict[str, Job], dict[str, int], list[Upload]]:
    """The same for output that agents upload themselves: an announced chunk gets an upload address, unless the log
    continues at another offset, and an uploaded chunk becomes part of the log."""
    after, ends = dict(jobs), dict[str, int]()
    orders: list[Upload] = []
    for chunk in message.chunks:
        job = after.get(chunk.task)
        if job is None or plane.uploads is None:
            continue
        job, excess = _within_quota(plane, job, chunk.end, draft)
        after[job.id] = job
        if excess:
            ends[job.id] = chunk.end
        elif chunk.stored:
            low, high = (min(max(0, at + clock_off), LAST_INSTANT) for at in (chunk.low, chunk.high))
            where = {"project_id": job.project_id, "job_id": job.id, "first": chunk.offset, "last": chunk.end}
            chunk_record = LogChunk.unvalidated(**where, low=low, high=high, blob="", clock_off=clock_off)
            ends[job.id] = plane.uploads.enter(chunk_record, chunk.sha256)
        else:
            offer = plane.uploads.offer(job.project_id, job.id, chunk.offset, chunk.size, chunk.sha256)
            if isinstance(offer, int):
                ends[job.id] = offer
            else:
                orders.append({"task": job.id, "url": offer.url, "headers": offer.headers})
    return after, ends, orders


def _take(plane: UploadPorts, job: Job, chunk: LogBytes, draft: Draft, clock_off: Micros) -> tuple[Job, int]:
    records = [(min(max(0, at + clock_off), LAST_INSTANT), data) for at, data in chunk.decoded()]
    last = chunk.offset + sum(len(data) for _, data in records)
    job, excess = _within_quota(plane, job, last, draft)
    return job, last if excess else plane.logs.append(job.project_id, job.id, chunk.offset, records)


def _within_quota(plane: UploadPorts, job: Job, last: int, draft: Draft) -> tuple[Job, bool]:
    """The job, ended if its log up to this byte exceeds its quota, and whether it does."""
    if job.reason is JobReason.log_quota_exceeded:
        return job, True
    quota = plane.limits.log_bytes_per_hour
    if not over_quota(job, last, quota, draft.now):
        return job, False
    if job.status is JobStatus.running:
        text = f"The job wrote more than {quota / 2**20:g} MB of log in an hour."
        job = draft.end_job(job, JobReason.log_quota_exceeded, message=text, grace=0)
    return job, True

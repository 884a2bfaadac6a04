"""A run: what the user submitted, and where it stands. The spec is immutable and stored apart (`RunBody`)."""

from __future__ import annotations

from enum import StrEnum

from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.reasons import RunReason


class RunStatus(StrEnum):
    pending = "pending"  # waits for a schedule, a retry delay or traffic; has no live job
    submitted = "submitted"
    provisioning = "provisioning"
    running = "running"
    terminating = "terminating"
    terminated = "terminated"
    failed = "failed"
    done = "done"


class Run(Noun):
    """The status item of a run, at most 1 KB."""

    id: str
    project_id: str
    user_id: str
    user_name: str
    name: str
    status: RunStatus = RunStatus.submitted
    reason: RunReason | None = None
    message: str = ""  # why it waits, or why it ended, in words a person reads
    priority: int = 0
    submitted_at: Micros
    last_processed_at: Micros
    finished_at: Micros | None = None
    deployment_num: int = 0
    resubmission_attempt: int = 0  # retries since the run last reached provisioning
    resume_at: Micros | None = None  # pending: when the next submission is made
    fleet_id: str | None = None
    fleet_name: str | None = None
    stop_at: Micros | None = None  # terminating: when patience with a graceful stop ends
    deleted: bool = False
    due_at: Micros | None = None  # when a pass must look again even if nothing happens

    @property
    def finished(self) -> bool:
        return self.status in (RunStatus.terminated, RunStatus.failed, RunStatus.done)


class RunBody(Noun):
    """The immutable part of a run at one deployment: JSON as the client sent it, and what the plan derived from it.

    Kept as text, because lists show it verbatim and must not pay for parsing it.
    """

    run_id: str
    deployment_num: int = 0
    run_spec: str  # JSON of the run spec with `run_name` and `ssh_key_pub` filled in, otherwise as sent
    job_specs: tuple[str, ...]  # JSON of one JobSpec a job, in (replica, job) order

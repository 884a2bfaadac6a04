"""A job is one submission of one node of one replica of a run: the unit that is placed on an instance.

The agent's task and the wire's "job submission" are the same thing under the same id. A retry creates a new job with
the next `submission_num`; a finished job never changes again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from chalicelib.domain import keys
from chalicelib.domain.bounds import Amount
from chalicelib.domain.instances import OnPrem
from chalicelib.domain.instants import Micros
from chalicelib.domain.market_answers import MarketQuery
from chalicelib.domain.noun import Noun, Value
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason
from chalicelib.printable import printable


class JobStatus(StrEnum):
    submitted = "submitted"
    provisioning = "provisioning"
    pulling = "pulling"
    running = "running"
    terminating = "terminating"
    terminated = "terminated"
    aborted = "aborted"
    failed = "failed"
    done = "done"


LIVE_ON_INSTANCE = (JobStatus.provisioning, JobStatus.pulling, JobStatus.running, JobStatus.terminating)


class Mounted(Value):
    """A volume that was chosen for a job, by mount point."""

    id: str
    name: str
    path: str


class Assignment(Value):
    """Where a job runs: the instance, the share of it, and the wire's provisioning and runtime data."""

    instance_id: str
    instance_name: str
    fleet_id: str
    fleet_name: str
    offer: Offer  # the slice given to this job: resources, price, blocks and total_blocks
    hostname: str = ""
    internal_ip: str = ""
    zone: str = ""  # of its machine, if that is known
    host: OnPrem | None = None  # of an SSH fleet: how people reach it
    assigned_at: Micros
    volumes: tuple[Mounted, ...] = ()


class Login(Value):
    """How to log in to a running job: its own SSH server, on its host's loopback. With a `problem` it has none.

    The texts end up in SSH configurations, and agents run beside users' programs, so their form is restricted."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    username: Annotated[str, Field(pattern=r"^([a-zA-Z0-9_][a-zA-Z0-9._-]{0,63})?$")] = ""
    host_key: Annotated[str, Field(pattern=r"^([a-z0-9-]{1,40} [A-Za-z0-9+/=]{1,1000})?$")] = ""
    problem: Annotated[str, Field(max_length=1000), AfterValidator(printable)] = ""


class PullProgress(Value):
    downloaded_bytes: Amount = 0
    extracted_bytes: Amount = 0
    total_bytes: Amount = 0
    is_total_bytes_final: bool = False


class Attempt(Value):
    """An offer that was tried for a job, and why it failed; it isn't tried again in this submission."""

    offer_key: str
    error: str


class Job(Noun):
    kind: ClassVar[str] = "job"
    in_run: ClassVar[str] = "run_id"

    id: str
    run_id: str
    run_name: str
    project_id: str
    replica_num: int = 0
    job_num: int = 0
    submission_num: int = 0
    deployment_num: int = 0
    replica_group: str = "0"  # of a service: the group it belongs to
    priority: int = 0
    status: JobStatus = JobStatus.submitted
    reason: JobReason | None = None
    message: str = ""
    ended_with_replica: bool = False  # another job of its replica failed, and all are submitted again
    exit_status: int | None = None
    submitted_at: Micros
    last_processed_at: Micros
    provisioned_at: Micros | None = None  # placed on an instance
    pulling_at: Micros | None = None
    running_at: Micros | None = None
    finished_at: Micros | None = None
    disconnected_at: Micros | None = None  # when its instance was first found overdue
    assignment: Assignment | None = None
    attempts: tuple[Attempt, ...] = ()
    markets: tuple[MarketQuery, ...] = ()  # that it is asked about
    reserved: bool = False  # submitted: its gang has all its places, and the job waits for the other nodes
    stop_sent_at: Micros | None = None  # terminating: when `stop` was first sent to the agent
    held: str = ""  # terminating: why its volumes can't be unmounted yet
    kill_at: Micros | None = None  # terminating: from then on `abort` is sent instead
    pull: PullProgress | None = None
    username: str | None = None  # as the runtime reports it, like `working_dir`
    working_dir: str | None = None
    login: Login | None = None
    connections: int | None = None  # the number of people's sessions; None: not reported
    idle_mark: Micros | None = None  # when the last session ended, by the machine's clock …
    inactive_since: Micros | None = None  # … and by ours
    inactivity_secs: int | None = None  # how long it had no session, if it was ended for that
    unjudged: str = ""  # why its `utilization_policy` can't be applied now
    probes: tuple[int, ...] = ()  # of a replica: successes of each probe in a row, counted no further than needed
    listens: bool = False  # of a replica: something accepts connections on its port
    ready_at: Micros | None = None  # of a replica: when it could first get requests
    draining_at: Micros | None = None  # of a replica: since when it gets no new ones, because it will be stopped
    host_port: int | None = None  # of a replica that shares its host's network: the port that it got there
    address: str | None = None  # of a replica in a container: where its host reaches its port
    queue: int | None = None  # of a replica: requests that wait inside its engine, as that reports
    log_end: int = 0  # bytes of log stored so far
    told_by: tuple[str, int] | None = None  # the agent process and the number of its message that last changed this
    due_at: Micros | None = None

    @property
    def had_machine(self) -> bool:
        """Retries count from the last that had one. A container counts once the job ran in it: what keeps it from
        starting may be the job's own image."""
        where = self.assignment
        return where is not None and (self.running_at is not None or not where.offer.is_container)

    @property
    def finished(self) -> bool:
        return self.status in (JobStatus.terminated, JobStatus.aborted, JobStatus.failed, JobStatus.done)

    @property
    def settled(self) -> bool:
        """It has ended, or runs on a host that reports."""
        return self.finished or (self.status is JobStatus.running and self.disconnected_at is None)

    @property
    def queued(self) -> bool:
        """Is it in the queue? Of several nodes only the first is, so that no page of the queue splits them."""
        waits = self.status is JobStatus.submitted and self.assignment is None
        return waits and self.job_num == 0 and not self.reserved

    @property
    def name(self) -> str:
        return f"{self.run_name}-{self.job_num}-{self.replica_num}"

    @property
    def slot(self) -> tuple[int, int]:
        return (self.replica_num, self.job_num)

    def place(self) -> keys.Place:
        """While a job waits, it is in its project's queue and makes that due; once placed, it makes its run due. A new
        job that isn't due is in no index: its submission wakes the queue, most jobs are placed at once, and in AWS the
        two index writes would cost a third of the placement. Its run queues it if the wake-up was lost."""
        key = keys.job(self.run_id, self.replica_num, self.job_num, self.submission_num)
        if self.queued and self.due_at is not None:
            queued = (keys.queue_of(self.project_id), keys.queue_sort(self.priority, self.submitted_at, self.id))
            return keys.Place(key, queued, due=keys.due(f"queue/{self.project_id}", self.due_at))
        return keys.Place(key, due=keys.due(f"run/{self.run_id}", self.due_at))

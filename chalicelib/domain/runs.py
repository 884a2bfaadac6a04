"""A run: what the user submitted, and its status. The spec is immutable and stored separately (`RunBody`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import AliasChoices, BeforeValidator, Field, ValidationInfo

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.job_specs import own_of, replica_of
from chalicelib.domain.noun import Noun, Value
from chalicelib.domain.reasons import RunReason
from chalicelib.domain.services import Scale
from chalicelib.domain.spending import DailyLimit


class RunStatus(StrEnum):
    pending = "pending"  # waits for a schedule, a retry delay or traffic; has no live job
    submitted = "submitted"
    provisioning = "provisioning"
    running = "running"
    terminating = "terminating"
    terminated = "terminated"
    failed = "failed"
    done = "done"


class ReplicaRetry(Value):
    """A failed replica that is retried. Dropped once the replica has a place."""

    replica: int = 0
    attempt: int  # retries since it last had a place
    resume_at: Micros | None = None  # when it will be resubmitted; None: it has been
    given_up: bool = False  # of a service: the replica isn't needed any more, so its failure doesn't count


def _retries(stored: Any, info: ValidationInfo) -> Any:
    """Read older records, in which a run had one replica and counted its attempts itself."""
    if not isinstance(stored, int):
        return stored
    return (ReplicaRetry(attempt=stored, resume_at=info.data.get("resume_at")),) if stored else ()


class Run(Noun):
    """The status item of a run, at most 1 KB."""

    kind: ClassVar[str] = "run"
    in_run: ClassVar[str] = "id"

    id: str
    project_id: str
    user_id: str
    user_name: str
    name: str
    status: RunStatus = RunStatus.submitted
    reason: RunReason | None = None
    message: str = ""  # why it waits or why it ended, for people
    priority: int = 0
    submitted_at: Micros
    last_processed_at: Micros
    finished_at: Micros | None = None
    deployment_num: int = 0
    changed_by: str = ""  # the user who applied its last change, if any
    limit: DailyLimit | None = None  # of the access token with which it was submitted or last changed
    ended_by: tuple[str, str] | None = None  # the id and name of who stopped or aborted it
    resume_at: Micros | None = None  # pending: when it resumes: its next scheduled start, or its first waiting replica
    triggered_at: Micros | None = None  # the scheduled start of its current jobs
    retries: Annotated[tuple[ReplicaRetry, ...], BeforeValidator(_retries)] = Field(
        default=(), validation_alias=AliasChoices("retries", "resubmission_attempt")
    )
    scales: tuple[Scale, ...] = ()  # of a service: how many replicas each of its groups should have
    gateway_id: str | None = None  # of a service: the gateway that takes its requests; None: the server itself
    url: str = ""  # of a service with a gateway: where it is
    fleet_id: str | None = None
    fleet_name: str | None = None
    deleted: bool = False
    deleted_at: Micros | None = None
    logs_erased: bool = False  # the logs of its jobs, some time after its end
    replaces: str = ""  # the id of the ended run whose name it took
    erased_cost: float = 0.0  # dollars, of jobs that were erased before it ended
    due_at: Micros | None = None  # when the next pass is due, even if nothing happens

    @property
    def finished(self) -> bool:
        return self.status in (RunStatus.terminated, RunStatus.failed, RunStatus.done)

    @property
    def ended_at(self) -> Micros:
        """For a finished run."""
        return self.finished_at or self.last_processed_at

    @property
    def next_start(self) -> Micros | None:
        """The scheduled start that it waits for; None if it waits for a retry or for nothing."""
        return None if self.retries else self.resume_at

    @property
    def resubmission_attempt(self) -> int:
        """The highest number of retries of any replica."""
        return max((retry.attempt for retry in self.retries), default=0)

    def place(self) -> keys.Place:
        """Its second index entry is among the live runs, or among those that have something to erase."""
        if self.deleted:
            gone = keys.by_time(keys.DELETED_RUNS, self.deleted_at or self.last_processed_at, self.id)
            return keys.Place(keys.run(self.id), gsi2=gone)
        listed = keys.by_time(keys.runs_of(self.project_id), self.submitted_at, self.id)
        beside: tuple[str, str] | None = (keys.live_runs_of(self.project_id), listed[1])
        if self.finished:
            beside = None if self.logs_erased else keys.by_time(keys.ENDED_RUNS, self.ended_at, self.id)
        return keys.Place(keys.run(self.id), listed, beside, keys.due(f"run/{self.id}", self.due_at))


class RunBody(Noun):
    """The immutable part of a run at one deployment: the JSON that the client sent, and the specs derived from it.

    Stored as text, because lists show it verbatim and shouldn't have to parse it. The nodes of a group share one text;
    otherwise two hundred of them wouldn't fit into a record.
    """

    run_id: str
    deployment_num: int = 0
    run_spec: str  # JSON of the run spec with `run_name` and `ssh_key_pub` filled in, otherwise as sent
    job_specs: tuple[str, ...]  # JSON of one JobSpec a group of nodes, that of its first, in (replica, job) order
    nodes: tuple[int, ...] = ()  # how many nodes each of these groups has; empty: one
    groups: tuple[str, ...] = ()  # of a service: the names of its replica groups, which have one JobSpec each
    applied_at: Micros | None = None  # None: of an older record, or the run's submission
    applied_by: str = ""  # the user's name

    def job_texts(self) -> tuple[str, ...]:
        """JSON of the JobSpec of each job, in (replica, job) order; of a service, of each replica group."""
        if not self.nodes:
            return self.job_specs
        return tuple(
            text for first, nodes in zip(self.job_specs, self.nodes, strict=True) for text in texts_of(first, nodes)
        )

    def replica_text(self, group: str, number: int) -> str:
        """JSON of the JobSpec of a service's replica."""
        text = self.job_specs[self.groups.index(group)]
        if number == 0:
            return text
        spec = orjson.loads(text)
        return orjson.dumps({**spec, **replica_of(spec, number)}).decode()

    def place(self) -> keys.Place:
        return keys.Place(keys.run_body(self.run_id, self.deployment_num))


def texts_of(first: str, nodes: int) -> list[str]:
    """The specs of all nodes of a group, derived from that of its first node."""
    if nodes == 1:
        return [first]
    spec = orjson.loads(first)
    return [first, *(orjson.dumps({**spec, **own_of(spec, number)}).decode() for number in range(1, nodes))]

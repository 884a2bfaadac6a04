"""The resources under `/api/v1`. Dates are RFC 3339, money is US dollars, and `why` is a text for people."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from chalicelib.contract.jobs import JobReason, JobStatus
from chalicelib.contract.runs import RunReason, RunStatus
from chalicelib.contract.values import Configuration, Date, Id


class V1ProblemPart(TypedDict):
    """One thing that is wrong with a request."""

    detail: str
    pointer: str
    """A JSON pointer into the body; empty: the request as a whole."""
    code: str
    """A kind of mistake; the reference of errors has an entry for each."""
    hint: str | None
    """How to mend it."""
    line: NotRequired[int]
    """In a text that was sent."""


class V1Problem(TypedDict):
    """Problem details, as in RFC 9457."""

    type: str
    title: str
    status: int
    code: str
    """The kind of problem, for programs."""
    detail: str
    hint: str | None
    """What to do about it."""
    errors: list[V1ProblemPart]


class V1Instance(TypedDict):
    """Where a job is."""

    id: Id
    name: str
    fleet: str
    backend: str
    region: str
    type: str
    spot: bool
    price_per_hour_usd: float


class V1Job(TypedDict):
    """A submission of a job: a job that is retried has one for each attempt, and the latest is shown."""

    id: Id
    name: str
    replica: int
    node: int
    attempt: int
    """0 for the first."""
    status: JobStatus
    reason: JobReason | None
    why: str | None
    exit_status: int | None
    submitted_at: Date
    finished_at: Date | None
    instance: V1Instance | None


class V1RunSummary(TypedDict):
    """A run in a list."""

    id: Id
    name: str
    project: str
    user: str
    url: str
    """The path of the run."""
    status: RunStatus
    reason: RunReason | None
    why: str | None
    """Why it waits or ended."""
    priority: int
    fleet: str | None
    revision: int
    """How often its spec was changed."""
    changed_by: str | None
    stopped_by: str | None
    submitted_at: Date
    finished_at: Date | None
    next_start_at: Date | None
    cost_usd: float
    """Until now."""
    service_url: str | None
    """Of a service; without a gateway a path, to be appended to the server's address."""


class V1Run(V1RunSummary):
    spec: Configuration
    jobs: list[V1Job]


class V1RunPage(TypedDict):
    items: list[V1RunSummary]
    next: str | None
    """The cursor of the next page; null at the end."""


class V1PlannedJob(TypedDict):
    """Jobs that start alike."""

    count: int
    offers: int
    """How many could take one."""
    cheapest_per_hour_usd: float | None
    dearest_per_hour_usd: float | None


class V1RunPlan(TypedDict):
    """What submitting a run would do. Nothing was changed."""

    action: Literal["create"]
    name: str
    spec: Configuration
    jobs: list[V1PlannedJob]
    notes: list[str]
    """Why there is no place for it now, how its jobs are separated, what it has of a quota, and other remarks."""


class V1Change(TypedDict):
    """What a request would do. Nothing was changed."""

    action: Literal["none", "create", "stop", "abort", "delete"]
    why: str | None


class V1LogLine(TypedDict):
    at: Date
    text: str
    """Bytes that aren't UTF-8 are shown as U+FFFD."""


class V1LogPage(TypedDict):
    job: Id
    items: list[V1LogLine]
    next: str | None


class V1Attachment(TypedDict):
    """A machine that has the volume."""

    instance: str
    instance_id: Id
    fleet: str
    run: str


class V1Volume(TypedDict):
    id: Id
    name: str
    project: str
    user: str
    url: str
    """The path of the volume."""
    status: Literal["submitted", "provisioning", "active", "deleting", "deleted", "failed"]
    why: str | None
    """What is wrong with it, or what it waits for."""
    backend: str
    region: str
    zone: str | None
    size_gb: int | None
    external: bool
    """The disk existed before, and stays when the volume is deleted."""
    disk_id: str | None
    """The provider's."""
    created_at: Date
    deleted_at: Date | None
    cost_usd: float
    """Until now."""
    attachments: list[V1Attachment]
    spec: Configuration


class V1VolumePage(TypedDict):
    items: list[V1Volume]
    next: str | None

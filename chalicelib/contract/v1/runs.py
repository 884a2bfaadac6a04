"""Runs, their jobs, plans, output and usage."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.jobs import JobReason, JobStatus
from chalicelib.contract.runs import RunReason, RunStatus
from chalicelib.contract.v1.machines import V1Gpus, V1Offer
from chalicelib.contract.values import Configuration, Date, Id


class V1Placement(TypedDict):
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
    """A submission of a job: a job that is retried has one for each attempt, and a run shows the latest."""

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
    provisioned_at: Date | None
    """When it got its place."""
    pulling_at: Date | None
    running_at: Date | None
    ready_at: Date | None
    """When a service's replica could first get requests."""
    finished_at: Date | None
    instance: V1Placement | None


class V1RunPlace(TypedDict):
    """A kind of machine that jobs of a run are on, or were on at the end."""

    backend: str
    region: str
    type: str
    spot: bool
    jobs: int


class V1Replicas(TypedDict):
    """Replicas of a service."""

    wanted: int
    running: int
    ready: int
    """That can get requests."""
    outdated: int
    """Of an older revision, which a rollout replaces."""
    why: str | None
    """Why so many are wanted."""


class V1RunSummary(TypedDict):
    """A run in a list."""

    id: Id
    name: str
    type: Literal["task", "service", "dev-environment"]
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
    asks_for: str | None
    """The GPUs that each of its jobs asks for, as in a configuration."""
    gpus: list[V1Gpus]
    """Of its jobs together: those they have, or had at the end."""
    places: list[V1RunPlace]
    jobs_count: int
    """How many it has now, or had at the end."""
    replicas: V1Replicas | None
    """Null: it isn't a service."""
    price_per_hour_usd: float
    """Of the jobs that have a place now."""
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


class V1JobPage(TypedDict):
    items: list[V1Job]
    next: str | None


class V1Revision(TypedDict):
    """A spec that a run has, or had."""

    run_id: Id
    revision: int
    current: bool
    """It is the run's now."""
    applied_at: Date | None
    """Null: unknown."""
    applied_by: str | None
    jobs: int
    """How many live jobs have it."""
    ready: int
    """Of a service: how many of them can get requests."""
    spec: Configuration


class V1Revisions(TypedDict):
    items: list[V1Revision]
    """Newest first."""


class V1PlannedJob(TypedDict):
    """Jobs that start alike."""

    count: int
    offers: int
    """How many could take one."""
    cheapest_per_hour_usd: float | None
    dearest_per_hour_usd: float | None
    best: list[V1Offer]
    """The first five that would be tried."""


class V1RunPlan(TypedDict):
    """What submitting a run would do. Nothing was changed."""

    action: Literal["none", "create", "change"]
    """`none`: everything is so already."""
    name: str
    spec: Configuration
    jobs: list[V1PlannedJob]
    notes: list[str]
    """Why there is no place for it now, how its jobs are separated, what it has of a quota, and other remarks."""


class V1LogLine(TypedDict):
    at: Date
    text: str
    """Bytes that aren't UTF-8 are shown as U+FFFD."""


class V1LogPage(TypedDict):
    job: Id
    items: list[V1LogLine]
    next: str | None
    resume: str | None
    """The cursor of what is written later: that of a follower, also at the end. Null with `newest_first`."""


class V1GpuUsage(TypedDict):
    memory_bytes: int | None
    percent: float | None


class V1Usage(TypedDict):
    """What a job used of its machine at one moment."""

    at: Date
    cpu_percent: int
    """Of one core."""
    memory_bytes: int
    working_set_bytes: int
    gpus: list[V1GpuUsage]


class V1Metrics(TypedDict):
    cpus: int | None
    """What the machine has; null while the job has none."""
    memory_total_bytes: int | None
    gpus: int | None
    items: list[V1Usage]
    """Newest first."""

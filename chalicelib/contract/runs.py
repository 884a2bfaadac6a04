"""Runs."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from chalicelib.contract.jobs import Job, Submission
from chalicelib.contract.specs import RunSpec
from chalicelib.contract.values import Date, Id

RunStatus = Literal["pending", "submitted", "provisioning", "running", "terminating", "terminated", "failed", "done"]
RunReason = Literal[
    "all_jobs_done",
    "job_failed",
    "retry_limit_exceeded",
    "stopped_by_user",
    "aborted_by_user",
    "server_error",
    "gateway_error",
]


class RunFleet(TypedDict):
    id: Id
    name: str


class ServiceModel(TypedDict):
    """The model that a service serves, with an API like OpenAI's."""

    name: str
    base_url: str
    type: Literal["chat"]


class ModelSpec(TypedDict):
    type: Literal["chat"]
    name: str
    format: Literal["openai"]
    prefix: str


class OpenAiOptions(TypedDict):
    model: ModelSpec


class ServiceOptions(TypedDict):
    openai: NotRequired[OpenAiOptions]


class Scale(TypedDict):
    """How many replicas a group of a service should have."""

    group: str
    desired: int
    why: str | None
    """Why the scaler wants that many; null for a fixed number."""
    wanted: int | None
    """The number that its traffic calls for, if that has to wait for a delay."""
    stale: bool
    """A door of the service is silent, so the number stays."""


class Service(TypedDict):
    """Where a service is. Without a gateway an address is a path, to be appended to the server's address."""

    url: str
    model: ServiceModel | None
    options: ServiceOptions
    scales: list[Scale]


class Run(TypedDict):
    """A run and its jobs."""

    id: Id
    project_name: str
    user: str
    fleet: RunFleet | None
    submitted_at: Date
    last_processed_at: Date
    status: RunStatus
    status_message: str
    """The status in words: also `pulling` and `retrying`."""
    termination_reason: RunReason | None
    run_spec: RunSpec
    jobs: list[Job]
    latest_job_submission: Submission | None
    cost: float
    """Dollars, until now."""
    service: Service | None
    deployment_num: int
    """How often the spec was changed."""
    error: str | None
    deleted: bool
    next_triggered_at: Date | None
    """The next start of a scheduled run."""
    message: str
    """Why it waits or ended, for people."""
    changed_by: str | None
    stopped_by: str | None

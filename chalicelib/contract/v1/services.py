"""Services: replicas, scaling and traffic."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.jobs import JobReason, JobStatus
from chalicelib.contract.values import Date, Id


class V1ScalingRule(TypedDict):
    metric: Literal["rps", "queue"]
    target: float
    """How much of the metric one replica should get."""
    window_seconds: int
    scale_up_delay_seconds: int
    scale_down_delay_seconds: int


class V1ReplicaGroup(TypedDict):
    """Replicas that are alike, and how many of them there should be."""

    name: str
    fewest: int
    most: int
    desired: int
    why: str | None
    """Why the scaler wants that many; null for a fixed number."""
    wanted: int | None
    """The number that its traffic calls for, if that has to wait for a delay."""
    changed_at: Date | None
    """When its scaler last changed the number."""
    scaling: V1ScalingRule | None
    """Null: the number is fixed."""


class V1Replica(TypedDict):
    num: int
    group: str
    revision: int
    """Of the spec that it runs."""
    job: Id
    status: JobStatus
    reason: JobReason | None
    why: str | None
    ready_at: Date | None
    """Since when it gets requests; null: not yet."""
    draining_at: Date | None
    """Since when it gets no new requests, because it will be stopped."""
    waiting: int | None
    """Requests that wait inside its model server, as that reports them."""
    submitted_at: Date


class V1Requests(TypedDict):
    """Ten seconds of traffic, at all doors together."""

    at: Date
    requests: int
    """That a replica got, or should have got."""
    busy: float
    """Requests under way or held, on average."""


class V1Percentiles(TypedDict):
    """Seconds within which that share of the answers came. They are computed from histograms, so they are off by less
    than the distance between two bounds, which is half of the greater one at most; 300 stands for more, too."""

    p50: float
    p95: float
    p99: float


class V1Answers(TypedDict):
    """How long the answers of half a minute took, at all doors together, since the requests had come."""

    at: Date
    first_byte: V1Percentiles | None
    """Until the first byte of the answer's body; null: none came."""
    whole: V1Percentiles | None
    """Until the answer was over."""


class V1Traffic(TypedDict):
    held: int
    """Requests that wait for a replica now."""
    reported_at: Date | None
    """When a door last reported; null: no request came yet."""
    items: list[V1Requests]
    """Of the last five minutes, oldest first; a step without a request may be left out."""
    answers: list[V1Answers]
    """Of the last five minutes, oldest first, without steps in which none came; none from gateways whose agents are of
    an earlier release."""
    first_byte: V1Percentiles | None
    """Of the last minute, to which the whole half minute counts in which it began; null: no answer came."""
    whole: V1Percentiles | None
    prompt_tokens: int
    """Read by the model since its doors began to count."""
    completion_tokens: int


class V1ServedModel(TypedDict):
    """A model with an API like OpenAI's."""

    name: str
    url: str
    """The base of its API; without a gateway a path, to be appended to the server's address."""


class V1Service(TypedDict):
    run: str
    url: str
    """Without a gateway a path, to be appended to the server's address."""
    auth: bool
    """Whether callers need a token."""
    model: V1ServedModel | None
    revision: int
    """Of the spec that its replicas should run."""
    groups: list[V1ReplicaGroup]
    replicas: list[V1Replica]
    """The latest of each number; not those that weren't needed any more."""
    traffic: V1Traffic

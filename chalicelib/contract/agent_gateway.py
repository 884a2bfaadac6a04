"""The contract between a gateway's program and the control plane. Times are microseconds since 1970."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict


class RateLimitKey(TypedDict):
    type: Literal["ip_address", "header"]
    header: NotRequired[str]


class RateLimit(TypedDict):
    prefix: str
    key: RateLimitKey
    rps: float
    burst: int


class ServedModel(TypedDict):
    name: str
    prefix: str


class ServedReplica(TypedDict):
    job_id: str
    instance_id: str
    port: int
    address: str
    """Where the gateway reaches it; empty: over streams."""
    nearby: str
    """Where the gateway may also reach it, if it finds that something listens there."""
    group: str
    ready: bool
    draining: bool
    """Gets no new requests, and is stopped once it has none."""


class GatewayService(TypedDict):
    run_id: str
    run_name: str
    project_id: str
    project_name: str
    port: int
    since: int
    auth: bool
    strip_prefix: bool
    https: int | None
    """The port to which requests without TLS are redirected."""
    rate_limits: list[RateLimit]
    model: ServedModel | None
    body: int
    routed: bool
    off: bool
    replicas: list[ServedReplica]
    hosts: list[str]
    hold: NotRequired[float]
    """Seconds that a request may wait for a replica. The plane leaves it to the gateway."""


class Certificate(TypedDict):
    """Both as PEM."""

    certificate: str
    key: str


class GatewayConfiguration(TypedDict):
    """What a gateway serves. The program stores it as it is."""

    version: str
    services: list[GatewayService]
    model_hosts: dict[str, str]
    """Hosts that serve every model of a project, by its id."""
    certificates: dict[str, Certificate]
    challenges: dict[str, str]
    """For certificates that are being issued: token to answer."""


class NewConfiguration(GatewayConfiguration):
    """The answer to `GET /agent/gateway` if there is another version than `since`."""

    news: Literal[True]
    ask_in: float


class SameConfiguration(TypedDict):
    """The answer if there is none."""

    news: Literal[False]
    ask_in: float
    """Seconds until the next poll, at least."""


class TrafficBucket(TypedDict):
    """Ten seconds of a service's requests."""

    at: int
    requests: int
    busy: float
    """Requests in progress, on average."""


class AnswersStep(TypedDict):
    """How long the answers of thirty seconds took, as histograms with the bounds of `domain/latencies.py`, without the
    zeros at their ends."""

    at: int
    first_byte: list[int]
    whole: list[int]


class Durations(TypedDict):
    """How long all answers took since nginx was started."""

    histogram: list[int]
    seconds: float
    """In total."""


class TrafficReport(TypedDict):
    run_id: str
    at: int
    quiet: bool
    held: int
    """Requests that wait for a replica."""
    waits_since: int | None
    """Read by planes of earlier releases only."""
    buckets: list[TrafficBucket]
    answers: list[AnswersStep]
    """Not from gateways of earlier releases, as the next two. Planes of earlier releases drop them."""
    first_byte: Durations
    whole: Durations
    let_go: list[str]
    """Draining jobs that have no request in progress."""


class TrafficReports(TypedDict):
    """The body of `POST /agent/gateway/traffic`."""

    reports: list[TrafficReport]


class RightsQuestion(TypedDict):
    """The body of `POST /agent/gateway/rights`: may the bearer of a token call the service, or all of the project?"""

    token_hash: str
    claims: str
    """Of a token for services: all of it before its last dot."""
    project: str
    run: str


class RightsAnswer(TypedDict):
    allowed: bool
    ends_in: NotRequired[float]
    """Seconds until the token ends by itself."""


class GatewayStream(TypedDict):
    """An order for a stream to a replica, whose agent dials the gateway with the ticket."""

    id: str
    ticket: str
    instance: str
    task: str
    target: str
    lazily: bool


class GatewayStreams(TypedDict):
    """The body of `POST /agent/gateway/streams`."""

    streams: list[GatewayStream]
    pin: str
    """The SHA-256 of the gateway's certificate; empty if it has no https."""

"""A service as its doors need it: who may call it, where its replicas are, and its limits.

A plain value, which the control plane makes for the server's own proxy and for gateways alike, so that one suite of
tests covers both.
"""

from __future__ import annotations

from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Value
from chalicelib.domain.specs.services import RateLimit

BODY = 64 * 1024 * 1024  # bytes of a request's body, unless the service says otherwise


class ServedReplica(Value):
    job_id: str
    instance_id: str  # the instance whose agent can open a stream to it
    port: int  # the port of the application
    address: str = ""  # where a door reaches that port directly; empty: only through streams of the agent
    nearby: str = ""  # where the door may reach it in a shared network, if the door verifies that
    group: str = "0"
    ready: bool = False  # may get requests
    draining: bool = False  # gets no new ones, and will be stopped once it has none


class ServedModel(Value):
    name: str
    prefix: str = "/v1"


class CallerVerdict(Value):
    """May the bearer of a token call a service?"""

    allowed: bool
    ends_in: float | None = None  # seconds until the token ends by itself, if it does


class Served(Value):
    """A live service."""

    run_id: str
    run_name: str
    project_id: str
    project_name: str
    port: int
    since: Micros = 0  # when it was submitted
    auth: bool = True
    strip_prefix: bool = True
    https: bool | None = None
    rate_limits: tuple[RateLimit, ...] = ()
    model: ServedModel | None = None
    body: int = BODY
    routed: bool = False  # its replicas are reached through a router, which serves only a few paths
    off: bool = False  # it is configured to have no replicas, so no request waits for one
    replicas: tuple[ServedReplica, ...] = ()

"""A service as a door needs to know it: who may call, where its replicas are, what limits it has.

A plain value, made by the plane for the server's own proxy and for gateways alike, so that both can be held to one
suite of tests.
"""

from __future__ import annotations

from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Value
from chalicelib.domain.specs.services import RateLimit

BODY = 64 * 1024 * 1024  # bytes of a request's body, unless the service says otherwise


class ServedReplica(Value):
    job_id: str
    instance_id: str  # whose agent can open a stream to it
    port: int  # where the application listens
    address: str = ""  # where a door reaches that port directly; empty: over its agent's streams only
    nearby: str = ""  # where the door may reach it in a network that both share, if it finds so
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
    routed: bool = False  # its replicas are reached through a router, which serves a few paths only
    off: bool = False  # it has no replicas, as configured, so nobody waits for one
    replicas: tuple[ServedReplica, ...] = ()

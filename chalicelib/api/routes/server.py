"""The server itself: its version and health, which need no token, and for admins the storage
that its data takes and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.route import Call
from chalicelib.api.wire.restorations import restoration_json
from chalicelib.api.wire.server import cost_json, health_json, info_json, slo_json, usage_json
from chalicelib.domain import keys
from chalicelib.usecases.operator import costs, restoration, server

if TYPE_CHECKING:
    from chalicelib import contract


def get_info(call: Call) -> contract.ServerInfo:
    return info_json()


def get_usage(call: Call) -> contract.ServerUsage:
    """The space that the data takes, and how long it is kept."""
    return usage_json(server.usage(call.plane))


def get_cost(call: Call) -> contract.ServerCost:
    """What the control plane costs in AWS in a month."""
    return cost_json(costs.report(call.plane))


def get_slo(call: Call) -> contract.ServerSlo:
    """How the server keeps its objectives, by its own measure."""
    return slo_json(server.standing(call.plane))


def get_restoration(call: Call) -> contract.RestorationAnswer:
    """Whether the server was restored from a backup, whether it only looks since, and what it has met."""
    return restoration_json(restoration.mark(call.plane), call.plane.clock.now())


def go_on(call: Call) -> contract.RestorationAnswer:
    """Lets a restored server act again before its hour of looking is over: it ends what isn't recorded."""
    return restoration_json(restoration.go_on(call.plane), call.plane.clock.now())


def healthcheck(call: Call) -> contract.Health:
    """A server that can read its store is healthy."""
    call.plane.store.get(keys.project_name("main"))
    return health_json(call.plane.install_id)

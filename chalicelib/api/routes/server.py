"""The server itself: its version and health, which need no token, and for admins the storage
that its data takes and what it costs."""

from __future__ import annotations

from typing import Any

from chalicelib.api.route import Call
from chalicelib.domain import keys
from chalicelib.usecases.operator import costs, server


def get_info(call: Call) -> Any:
    return server.info()


def get_usage(call: Call) -> Any:
    return server.usage(call.plane)


def get_cost(call: Call) -> Any:
    return costs.report(call.plane)


def healthcheck(call: Call) -> Any:
    """A server that can read its store is healthy."""
    call.plane.store.get(keys.project_name("main"))
    return {"status": "running"}

"""The two calls that need no token: server info and health."""

from __future__ import annotations

from typing import Any

from chalicelib.api.route import Call
from chalicelib.domain import keys
from chalicelib.usecases import server


def get_info(call: Call) -> Any:
    return server.info()


def healthcheck(call: Call) -> Any:
    """A server that can read its store is healthy."""
    call.plane.store.get(keys.project_name("main"))
    return {"status": "running"}

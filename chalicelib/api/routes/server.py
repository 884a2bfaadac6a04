"""The two calls that need no token: who is there, and is it well."""

from __future__ import annotations

from typing import Any

from chalicelib.api.table import Access, Call, Route
from chalicelib.store import keys
from chalicelib.usecases import server


def get_info(call: Call) -> Any:
    return server.info()


def healthcheck(call: Call) -> Any:
    """Well is what can read its store."""
    call.plane.store.get(keys.project_name("main"))
    return {"status": "running"}


ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/server/get_info", Access.public, get_info),
    Route("GET", "/healthcheck", Access.public, healthcheck),
)

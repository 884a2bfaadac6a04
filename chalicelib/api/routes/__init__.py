"""The route table: one module a noun, each with its `ROUTES`; what isn't built is refused by name (`refused.py`)."""

from __future__ import annotations

from chalicelib.api.routes import (
    agent,
    events,
    files,
    fleets,
    gpus,
    instances,
    logs,
    metrics,
    projects,
    refused,
    repos,
    runs,
    secrets,
    server,
    users,
)
from chalicelib.api.table import Route

_MODULES = (
    runs, fleets, instances, gpus, projects, users, repos, files, secrets, logs, metrics, events, server, agent
)  # fmt: skip

BUILT: tuple[Route, ...] = tuple(route for module in _MODULES for route in module.ROUTES)

ROUTES: tuple[Route, ...] = (*BUILT, *refused.beside(BUILT))

"""The route table: one module a noun, each with its `ROUTES`; what isn't built is refused by name (`refused.py`)."""

from __future__ import annotations

from chalicelib.api.routes import fleets, gpus, instances, refused, runs
from chalicelib.api.table import Route

BUILT: tuple[Route, ...] = (
    *runs.ROUTES,
    *fleets.ROUTES,
    *instances.ROUTES,
    *gpus.ROUTES,
)

ROUTES: tuple[Route, ...] = (*BUILT, *refused.beside(BUILT))

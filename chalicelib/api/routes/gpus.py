from __future__ import annotations

from chalicelib.api.table import Route

ROUTES: tuple[Route, ...] = ()

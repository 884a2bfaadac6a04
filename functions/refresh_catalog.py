"""Ask every configured backend for its offers and keep them, with their age. On a schedule; plans read what is kept."""

from __future__ import annotations

from typing import Any

from chalicelib.catalog.offers import StoredCatalog
from chalicelib.runtime import lambda_


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    plane = lambda_.plane()
    StoredCatalog(plane.blobs, plane.clock).refresh(lambda_.backends())
    return {"backends": sorted(lambda_.backends())}

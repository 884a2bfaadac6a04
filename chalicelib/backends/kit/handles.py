"""Handles of what providers create: where it is and when it was created are data of each."""

from __future__ import annotations

from datetime import datetime

from chalicelib.backends.kit.visibility import CREATED, stamp
from chalicelib.domain.instances import Handle


def located(kind: str, identity: object, region: str, *, zone: str = "", created: object = None, **more: str) -> Handle:
    """`created`: an ISO 8601 time, if the provider says one. `more`: further data; what is empty is left out."""
    data = {"region": region, "zone": zone, **more}
    if created:
        data[CREATED] = stamp(datetime.fromisoformat(str(created)))
    return Handle(kind=kind, id=str(identity), data={name: value for name, value in data.items() if value})

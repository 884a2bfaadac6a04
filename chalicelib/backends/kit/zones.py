"""Tries one zone after another, where a zone may have the capacity that the last one lacked.

A provider's idempotency token is valid in one zone, so each zone gets its own, derived from the request's. Before each
zone but the first, a handle of the kind `TRYING` names the zone. If a response is lost, the next call begins with that
zone, and the zone's token finds the machine, even if the first zone has room again and nothing is listed yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.errors import BackendError, InsufficientCapacity, Unfit


class Zoned(Protocol):
    """A place where a machine may be launched."""

    @property
    def zone(self) -> str: ...


Place = TypeVar("Place", bound=Zoned)
T = TypeVar("T")


def zone_token(token: str, zone: str) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(f"{token}/{zone}".encode()).hexdigest()


def first_with_room(
    request: CreateRequest,
    places: Sequence[Place],
    launch: Callable[[Place], T],
    is_elsewhere: Callable[[BackendError], bool],
) -> Generator[Handle, None, T]:
    """What `launch` returns for the first place that has room. `is_elsewhere`: may another zone have what this one
    lacks? Any other exception ends the search."""
    refused: dict[str, BackendError] = {}
    for place in sorted(places, key=lambda each: each.zone != request.trying):
        if refused:
            yield Handle(kind=TRYING, id=place.zone, data={"zone": place.zone})
        try:
            return launch(place)
        except BackendError as error:
            if not is_elsewhere(error):
                raise
            refused[place.zone] = error
    where = "; ".join(f"{zone}: {error.message}" for zone, error in refused.items())
    short = any(isinstance(error, InsufficientCapacity) for error in refused.values())
    raise (InsufficientCapacity if short else Unfit)(f"No zone has {request.offer.instance.name} now. {where}")

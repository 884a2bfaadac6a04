"""One zone tried after another, where each zone may have what the last one refused.

A provider's own idempotency token is good for a zone, so each has its own, made from the request's. Before each zone
but the first a handle of the kind `TRYING` says which is next: where an answer was lost, the next call begins with that
zone, and its token finds the machine, though the first zone has room again and nothing is listed yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeVar

from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.errors import BackendError, InsufficientCapacity, Unfit


class Zoned(Protocol):
    """A place that a machine may be launched in."""

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
    """What `launch` returns of the first place that doesn't refuse it. `is_elsewhere`: may another zone have what this
    one refused? Anything else that is raised ends the walk."""
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

"""Which resources at a provider belong to nobody any more.

An instance is committed before anything is bought for it and its record is read by key, so a tag whose instance isn't
there names nothing that was ever wanted; whoever asks must list first and read the owners afterwards. A resource of an
instance that ended may only be a listing that lags behind: it is left alone until the provider's lag has passed.
Whatever bears another install's tag is somebody else's, and never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros


class Tagged(Protocol):
    """What a listing shows of a resource: whose it says it is."""

    @property
    def install(self) -> str: ...
    @property
    def instance_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...


T = TypeVar("T", bound=Tagged)


def orphans(
    listed: Iterable[T], owners: Mapping[str, Instance], *, install_id: str, now: Micros, lag: Micros
) -> list[T]:
    """Those of `listed` to give back. `owners` holds every instance that the listing names and the store has."""
    mine = (one for one in listed if one.install == install_id)
    return [one for one in mine if _forsaken(one, owners.get(one.instance_id), now - lag)]


def _forsaken(resource: Tagged, owner: Instance | None, before: Micros) -> bool:
    if owner is None or resource.epoch < owner.epoch:  # never wanted, or of a purchase that another has followed
        return True
    if owner.status is not InstanceStatus.terminated or resource.epoch > owner.epoch:
        return False
    return (owner.finished_at or owner.last_processed_at) <= before

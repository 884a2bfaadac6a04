"""Placement groups that some types need, and others don't. What the engine has for these is a handle that stands for
nothing at the provider."""

from __future__ import annotations

from chalicelib.backends.spi import CreateRequest, GroupRequest
from chalicelib.domain.instances import Handle

GROUP = "group"  # the kind of a group's handle
NOTHING = "none"  # in its data: why there is none


def no_group(request: GroupRequest, why: str) -> Handle:
    return Handle(kind=GROUP, id=request.name, data={"region": request.offer.region, NOTHING: why})


def is_nothing(group: Handle) -> bool:
    return NOTHING in group.data


def group_of(request: CreateRequest) -> Handle | None:
    """The group at the provider that the machine joins."""
    group = request.placement_group
    return None if group is None or is_nothing(group) else group

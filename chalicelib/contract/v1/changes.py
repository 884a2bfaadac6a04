"""What has changed, for those who follow it."""

from __future__ import annotations

from typing_extensions import TypedDict

from chalicelib.contract.v1.gateways import V1GatewaySummary
from chalicelib.contract.v1.machines import V1FleetSummary, V1Instance
from chalicelib.contract.v1.runs import V1RunSummary
from chalicelib.contract.v1.volumes import V1Volume
from chalicelib.contract.values import Id


class V1Removed(TypedDict):
    """The ids of things that are in their lists no more."""

    runs: list[Id]
    fleets: list[Id]
    instances: list[Id]
    volumes: list[Id]
    gateways: list[Id]


class V1Changes(TypedDict):
    """New and changed things, each whole, and those that are gone. A thing may come again unchanged."""

    reset: bool
    """The lists begin anew: what was read before counts no more."""
    more: bool
    """More of the lists follows: ask again at once."""
    projects: list[str] | None
    """Of the projects that were asked for, those that are followed: others don't exist, or aren't the caller's. None:
    all of the caller's are."""
    runs: list[V1RunSummary]
    fleets: list[V1FleetSummary]
    instances: list[V1Instance]
    volumes: list[V1Volume]
    gateways: list[V1GatewaySummary]
    removed: V1Removed
    cursor: str
    """For the next request."""
    poll_after_ms: int
    """When to send it."""

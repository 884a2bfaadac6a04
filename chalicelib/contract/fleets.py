"""Fleets, and the commands with which machines join them."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.instances import Instance
from chalicelib.contract.specs import FleetSpec
from chalicelib.contract.values import Date, Id

FleetStatus = Literal["submitted", "active", "terminating", "terminated", "failed"]
JoinStatus = Literal["unused", "used", "revoked", "expired"]


class Fleet(TypedDict):
    """A fleet and its machines."""

    id: Id
    name: str
    project_name: str
    spec: FleetSpec
    created_at: Date
    status: FleetStatus
    status_message: str | None
    instances: list[Instance]


class Join(TypedDict):
    """A command with which one machine joins a fleet."""

    id: Id
    created_at: Date
    expires_at: Date
    created_by: str
    status: JoinStatus
    instance_name: str | None
    """The machine that used it."""


class CreatedJoin(Join):
    command: str
    """Shown this once."""

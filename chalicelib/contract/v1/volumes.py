"""Volumes."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Configuration, Date, Id


class V1Attachment(TypedDict):
    """A machine that has the volume."""

    instance: str
    instance_id: Id
    fleet: str
    run: str


class V1Volume(TypedDict):
    id: Id
    name: str
    project: str
    user: str
    url: str
    """The path of the volume."""
    status: Literal["submitted", "provisioning", "active", "deleting", "deleted", "failed"]
    why: str | None
    """What is wrong with it, or what it waits for."""
    backend: str
    region: str
    zone: str | None
    size_gb: int | None
    external: bool
    """The disk existed before, and stays when the volume is deleted."""
    disk_id: str | None
    """The provider's."""
    created_at: Date
    deleted_at: Date | None
    price_per_month_usd: float | None
    """Null: it is unknown."""
    cost_usd: float
    """Until now."""
    attachments: list[V1Attachment]
    spec: Configuration


class V1VolumePage(TypedDict):
    items: list[V1Volume]
    next: str | None

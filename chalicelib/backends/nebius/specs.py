"""Specs that are specific to Nebius: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import EXISTING, VolumeConfiguration


class NebiusVolumeConfiguration(VolumeConfiguration):
    backend: Literal["nebius"] = Field(default="nebius", description="`nebius`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=EXISTING)
    region: str = Field(description="The region it is in.")

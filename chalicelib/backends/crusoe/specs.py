"""What users write for Crusoe alone: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import EXISTING, VolumeConfiguration


class CrusoeVolumeConfiguration(VolumeConfiguration):
    backend: Literal["crusoe"] = Field(default="crusoe", description="`crusoe`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=EXISTING)
    region: str = Field(description="The location it is in.")

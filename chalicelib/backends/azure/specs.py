"""What users write for Azure alone: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import EXISTING, VolumeConfiguration


class AzureVolumeConfiguration(VolumeConfiguration):
    backend: Literal["azure"] = Field(default="azure", description="`azure`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=EXISTING)
    region: str = Field(description="The region it is in.")
    availability_zone: str | None = Field(default=None, description="The zone it is in; the first unless set.")

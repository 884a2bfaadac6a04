"""What users write for Azure alone: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.volumes import ZonalVolumeConfiguration


class AzureVolumeConfiguration(ZonalVolumeConfiguration):
    backend: Literal["azure"] = Field(default="azure", description="`azure`.")
    availability_zone: str | None = Field(default=None, description="The zone it is in; the first unless set.")

"""What users write for Daytona alone: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.volumes import VolumeConfiguration


class DaytonaVolumeConfiguration(VolumeConfiguration):
    backend: Literal["daytona"] = Field(default="daytona", description="`daytona`.")
    volume_id: str | None = Field(default=None, description="The id of an existing volume.")

"""What users write for Crusoe alone: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.volumes import RegionalVolumeConfiguration


class CrusoeVolumeConfiguration(RegionalVolumeConfiguration):
    backend: Literal["crusoe"] = Field(default="crusoe", description="`crusoe`.")
    region: str = Field(description="The location it is in.")

"""What users write for Runpod alone: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.volumes import RegionalVolumeConfiguration


class RunpodVolumeConfiguration(RegionalVolumeConfiguration):
    backend: Literal["runpod"] = Field(default="runpod", description="`runpod`.")
    availability_zone: str | None = Field(
        default=None, description="Runpod has none: accepted and dropped.", exclude=True
    )

"""What users write for Lium alone: its volumes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.volumes import VolumeConfiguration


class LiumVolumeConfiguration(VolumeConfiguration):
    backend: Literal["lium"] = Field(default="lium", description="`lium`.")
    volume_id: str | None = Field(default=None, description="The id of an existing volume.")

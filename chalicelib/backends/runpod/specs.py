"""What users write for Runpod alone: its volumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import VolumeConfiguration
from chalicelib.errors import Problem


class RunpodVolumeConfiguration(VolumeConfiguration):
    backend: Literal["runpod"] = Field(default="runpod", description="`runpod`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description="Refused: an existing network volume can't be used.")
    region: str = Field(description="The region it is in.")
    availability_zone: str | None = Field(
        default=None, description="Runpod has none: accepted and dropped.", exclude=True
    )

    def not_built(self) -> Iterator[Problem]:
        """Existing volumes: they have no tags, with which an owner offers a disk to a project."""
        if self.volume_id is not None:
            text = "an existing network volume of Runpod can't be used"
            yield Problem(text, path="volume_id", hint="write `size` for a new one", code="unsupported")

"""What users write for Kubernetes alone: its volumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import VolumeConfiguration
from chalicelib.errors import Problem

AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]


class KubernetesVolumeConfiguration(VolumeConfiguration):
    backend: Literal["kubernetes"] = Field(default="kubernetes", description="`kubernetes`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    region: str = Field(default="", description="The cluster it is in.")
    claim_name: str | None = Field(default=None, description="An existing claim; instead of `size`.")
    storage_class_name: str | None = Field(
        default=None, description="The storage class; the cluster's default unless set."
    )
    access_modes: tuple[AccessMode, ...] = Field(default=("ReadWriteOnce",), description="Access modes of the claim.")
    read_only: bool = Field(default=False, description="Mount it read-only.")

    def not_built(self) -> Iterator[Problem]:
        """What would make the volume useless."""
        if not self.region:
            yield Problem("a volume is in one cluster", path="region", hint="name its context", code="missing")
        if self.external_id is None and set(self.access_modes) == {"ReadOnlyMany"}:
            text = "a new claim is empty, and nothing could ever be written to one with `ReadOnlyMany` alone"
            hint = "add `ReadWriteOnce` or `ReadWriteMany`"
            yield Problem(text, path="access_modes", hint=hint, code="exclusive")
        if self.external_id is not None:
            for field in ("storage_class_name", "access_modes"):
                if getattr(self, field) != type(self).model_fields[field].default:
                    text = "an existing claim stays as it is"
                    yield Problem(text, path=field, hint=f"remove `{field}`", code="exclusive")
        if self.read_only and self.external_id is None:
            text = "a new volume is empty, and nothing could ever be written to one that is read-only"
            hint = "leave it out, or name an existing claim with `claim_name`"
            yield Problem(text, path="read_only", hint=hint, code="exclusive")

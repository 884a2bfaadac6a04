"""Volumes: cloud disks that outlive runs. Their fields depend on the backend, whose own model reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.providers import ProviderUnion
from chalicelib.domain.specs.quantities import DiskSize, IdleDuration
from chalicelib.domain.specs.reading import Spec, faults
from chalicelib.errors import Problem

_NAME = "The name of the volume; a random one unless set."
_CLEANUP = "Delete it once no run has used it for this long; kept unless set."


class VolumeConfiguration(Spec):
    """What every volume has."""

    type: Literal["volume"] = Field(default="volume", description="`volume`.")
    name: str | None = Field(default=None, description=_NAME)
    auto_cleanup_duration: IdleDuration = Field(default=None, description=_CLEANUP)
    tags: Tags | None = Field(default=None, description="Tags for it in the cloud.")
    backend: str = Field(description="The backend it is in.")

    @classmethod
    def read(cls, written: Any) -> Any:
        """Read `resources: {disk: 100GB}`, the former form of `size: 100GB`."""
        if isinstance(written, dict) and isinstance(written.get("resources"), dict) and "size" in cls.model_fields:
            resources = written["resources"]
            if resources.keys() == {"disk"} and written.get("size") is None:
                return {k: v for k, v in written.items() if k != "resources"} | {"size": resources["disk"]}
        return written

    def not_built(self) -> Iterator[Problem]:
        """Problems for requested features that the backend doesn't have yet."""
        yield from ()

    @property
    def external_id(self) -> str | None:
        """The backend's id of an existing volume."""
        return getattr(self, "volume_id", None) or getattr(self, "claim_name", None)

    @model_validator(mode="after")
    def _source(self) -> VolumeConfiguration:
        fields = type(self).model_fields
        found = []
        if "size" in fields and not getattr(self, "size", None) and self.external_id is None:
            other = "claim_name" if "claim_name" in fields else "volume_id"
            found.append(("missing", f"a volume needs `size`, or `{other}`", "for example `size: 100GB`", ""))
        if self.external_id is not None:
            found += [("exclusive", why, f"remove `{field}`", field) for field, why in self._new_volume_fields()]
        if found:
            raise faults(found)
        return self

    def _new_volume_fields(self) -> Iterator[tuple[str, str]]:
        """The fields that are set but can't be for an existing volume, and why."""
        if getattr(self, "size", None):
            yield "size", "an existing volume has a size of its own"
        if self.tags:
            yield "tags", "an existing volume stays as it is, so it gets no tags"
        if self.auto_cleanup_duration is not None and self.auto_cleanup_duration >= 0:
            yield "auto_cleanup_duration", "an existing volume isn't deleted for you"


class RegionalVolumeConfiguration(VolumeConfiguration):
    """Of a cloud with regions."""

    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description="The cloud's id of an existing volume; instead of `size`.")
    region: str = Field(description="The region it is in.")


class ZonalVolumeConfiguration(RegionalVolumeConfiguration):
    """Of a cloud whose disks are in zones."""

    availability_zone: str | None = Field(default=None, description="The zone it is in; any unless set.")


AnyVolumeConfiguration = Annotated[
    VolumeConfiguration, ProviderUnion("volume", by="backend", general=VolumeConfiguration)
]


class VolumeSpec(Spec):
    configuration: AnyVolumeConfiguration

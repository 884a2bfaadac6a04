"""Volumes: cloud disks that outlive runs. Their fields depend on the backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.quantities import DiskSize, IdleDuration
from chalicelib.domain.specs.reading import TAG, Spec, faults

_NAME = "The name of the volume; a random one unless set."
_CLEANUP = "Delete it once no run has used it for this long; kept unless set."
_EXISTING = "The cloud's id of an existing volume; instead of `size`."


class VolumeConfiguration(Spec):
    """What every volume has."""

    type: Literal["volume"] = Field(default="volume", description="`volume`.")
    name: str | None = Field(default=None, description=_NAME)
    auto_cleanup_duration: IdleDuration = Field(default=None, description=_CLEANUP)
    tags: Tags | None = Field(default=None, description="Tags for it in the cloud.")

    @classmethod
    def read(cls, written: Any) -> Any:
        """`resources: {disk: 100GB}` is the older form of `size: 100GB`."""
        if isinstance(written, dict) and isinstance(written.get("resources"), dict) and "size" in cls.model_fields:
            asked = written["resources"]
            if asked.keys() == {"disk"} and written.get("size") is None:
                return {k: v for k, v in written.items() if k != "resources"} | {"size": asked["disk"]}
        return written

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
            found += [("exclusive", why, f"remove `{field}`", field) for field, why in self._for_new_ones()]
        if found:
            raise faults(found)
        return self

    def _for_new_ones(self) -> Iterator[tuple[str, str]]:
        """What is set and can't be for an existing volume, and why."""
        if getattr(self, "size", None):
            yield "size", "an existing volume has a size of its own"
        if self.tags:
            yield "tags", "an existing volume stays as it is, so it gets no tags"
        if self.auto_cleanup_duration is not None and self.auto_cleanup_duration >= 0:
            yield "auto_cleanup_duration", "an existing volume isn't deleted for you"


class AWSVolumeConfiguration(VolumeConfiguration):
    backend: Literal["aws"] = Field(default="aws", description="`aws`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=_EXISTING)
    region: str = Field(description="The region it is in.")
    availability_zone: str | None = Field(default=None, description="The zone it is in; any unless set.")


class GCPVolumeConfiguration(VolumeConfiguration):
    backend: Literal["gcp"] = Field(default="gcp", description="`gcp`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=_EXISTING)
    region: str = Field(description="The region it is in.")
    availability_zone: str | None = Field(default=None, description="The zone it is in; any unless set.")


class RunpodVolumeConfiguration(VolumeConfiguration):
    backend: Literal["runpod"] = Field(default="runpod", description="`runpod`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=_EXISTING)
    region: str = Field(description="The region it is in.")
    availability_zone: str | None = Field(
        default=None, description="Runpod has none: accepted and dropped.", exclude=True
    )


class KubernetesVolumeConfiguration(VolumeConfiguration):
    backend: Literal["kubernetes"] = Field(default="kubernetes", description="`kubernetes`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    region: str = Field(default="", description="The cluster it is in.")
    claim_name: str | None = Field(default=None, description="An existing claim; instead of `size`.")
    storage_class_name: str | None = Field(
        default=None, description="The storage class; the cluster's default unless set."
    )
    access_modes: tuple[str, ...] = Field(default=("ReadWriteOnce",), description="Access modes of the claim.")
    read_only: bool = Field(default=False, description="Mount it read-only.")


class DaytonaVolumeConfiguration(VolumeConfiguration):
    backend: Literal["daytona"] = Field(default="daytona", description="`daytona`.")
    volume_id: str | None = Field(default=None, description="The id of an existing volume.")


class LiumVolumeConfiguration(VolumeConfiguration):
    backend: Literal["lium"] = Field(default="lium", description="`lium`.")
    volume_id: str | None = Field(default=None, description="The id of an existing volume.")


VOLUMES = {
    "aws": "AWSVolumeConfiguration",
    "gcp": "GCPVolumeConfiguration",
    "runpod": "RunpodVolumeConfiguration",
    "kubernetes": "KubernetesVolumeConfiguration",
    "daytona": "DaytonaVolumeConfiguration",
    "lium": "LiumVolumeConfiguration",
}


def _arm(value: Any) -> str:
    found = value.get("backend") if isinstance(value, dict) else getattr(value, "backend", None)
    return TAG + (VOLUMES.get(found, "") if isinstance(found, str) else "")


AnyVolumeConfiguration = Annotated[
    Annotated[AWSVolumeConfiguration, Tag(TAG + "AWSVolumeConfiguration")]
    | Annotated[GCPVolumeConfiguration, Tag(TAG + "GCPVolumeConfiguration")]
    | Annotated[RunpodVolumeConfiguration, Tag(TAG + "RunpodVolumeConfiguration")]
    | Annotated[KubernetesVolumeConfiguration, Tag(TAG + "KubernetesVolumeConfiguration")]
    | Annotated[DaytonaVolumeConfiguration, Tag(TAG + "DaytonaVolumeConfiguration")]
    | Annotated[LiumVolumeConfiguration, Tag(TAG + "LiumVolumeConfiguration")],
    Discriminator(
        _arm,
        custom_error_type="unknown-backend",
        custom_error_message="one of " + ", ".join(f"`{name}`" for name in VOLUMES),
    ),
]


class VolumeSpec(Spec):
    configuration: AnyVolumeConfiguration

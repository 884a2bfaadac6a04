"""What users write for Google Cloud alone: its volumes, and the certificates that it keeps."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from chalicelib.domain.specs.gateways import ProviderGatewayCertificate
from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import EXISTING, VolumeConfiguration


class GCPVolumeConfiguration(VolumeConfiguration):
    backend: Literal["gcp"] = Field(default="gcp", description="`gcp`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=EXISTING)
    region: str = Field(description="The region it is in.")
    availability_zone: str | None = Field(default=None, description="The zone it is in; any unless set.")


class GCPCertificateManagerGatewayCertificate(ProviderGatewayCertificate):
    """A certificate of Google's Certificate Manager."""

    BACKEND: ClassVar[str] = "gcp"
    OWNER: ClassVar[str] = "Google Cloud"

    type: Literal["gcp-cm"] = Field(default="gcp-cm", description="`gcp-cm`.")
    name: str = Field(description="Its name.")

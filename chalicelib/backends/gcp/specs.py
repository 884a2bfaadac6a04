"""What users write for Google Cloud alone: its volumes, and the certificates that it keeps."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from chalicelib.domain.specs.gateways import ProviderGatewayCertificate
from chalicelib.domain.specs.volumes import ZonalVolumeConfiguration


class GCPVolumeConfiguration(ZonalVolumeConfiguration):
    backend: Literal["gcp"] = Field(default="gcp", description="`gcp`.")


class GCPCertificateManagerGatewayCertificate(ProviderGatewayCertificate):
    """A certificate of Google's Certificate Manager."""

    BACKEND: ClassVar[str] = "gcp"
    OWNER: ClassVar[str] = "Google Cloud"

    type: Literal["gcp-cm"] = Field(default="gcp-cm", description="`gcp-cm`.")
    name: str = Field(description="Its name.")

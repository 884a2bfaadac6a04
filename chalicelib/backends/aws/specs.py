"""Specs that are specific to AWS: its volumes, and the certificates that it stores."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from chalicelib.domain.specs.gateways import ProviderGatewayCertificate
from chalicelib.domain.specs.quantities import DiskSize
from chalicelib.domain.specs.volumes import EXISTING, VolumeConfiguration


class AWSVolumeConfiguration(VolumeConfiguration):
    backend: Literal["aws"] = Field(default="aws", description="`aws`.")
    size: DiskSize | None = Field(default=None, description="Its size.")
    volume_id: str | None = Field(default=None, description=EXISTING)
    region: str = Field(description="The region it is in.")
    availability_zone: str | None = Field(default=None, description="The zone it is in; any unless set.")


class ACMGatewayCertificate(ProviderGatewayCertificate):
    """A certificate of AWS Certificate Manager."""

    BACKEND: ClassVar[str] = "aws"
    OWNER: ClassVar[str] = "AWS"

    type: Literal["acm"] = Field(default="acm", description="`acm`.")
    arn: str = Field(description="Its ARN.")

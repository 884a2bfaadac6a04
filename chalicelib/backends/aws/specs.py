"""Specs that are specific to AWS: its volumes, and the certificates that it stores."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from chalicelib.domain.specs.gateways import ProviderGatewayCertificate
from chalicelib.domain.specs.volumes import ZonalVolumeConfiguration


class AWSVolumeConfiguration(ZonalVolumeConfiguration):
    backend: Literal["aws"] = Field(default="aws", description="`aws`.")


class ACMGatewayCertificate(ProviderGatewayCertificate):
    """A certificate of AWS Certificate Manager."""

    BACKEND: ClassVar[str] = "aws"
    OWNER: ClassVar[str] = "AWS"

    type: Literal["acm"] = Field(default="acm", description="`acm`.")
    arn: str = Field(description="Its ARN.")

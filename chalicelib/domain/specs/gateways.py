"""Gateways: how services are reached, with domains, certificates and several replicas."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from chalicelib.domain.specs.profiles import BackendName, Tags
from chalicelib.domain.specs.reading import TAG, Spec, Whole, faults, unset


class LetsEncryptGatewayCertificate(Spec):
    """A certificate by Let's Encrypt."""

    type: Literal["lets-encrypt"] = Field(default="lets-encrypt", description="`lets-encrypt`.")


class ACMGatewayCertificate(Spec):
    """A certificate of AWS Certificate Manager."""

    type: Literal["acm"] = Field(default="acm", description="`acm`.")
    arn: str = Field(description="Its ARN.")


class GCPCertificateManagerGatewayCertificate(Spec):
    """A certificate of Google's Certificate Manager."""

    type: Literal["gcp-cm"] = Field(default="gcp-cm", description="`gcp-cm`.")
    name: str = Field(description="Its name.")


class ALBGatewayLoadBalancer(Spec):
    """The cloud's application load balancer."""

    type: Literal["alb"] = Field(description="`alb`.")


_CERTIFICATES = {
    "lets-encrypt": "LetsEncryptGatewayCertificate",
    "acm": "ACMGatewayCertificate",
    "gcp-cm": "GCPCertificateManagerGatewayCertificate",
}


def _arm(value: Any) -> str:
    found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return TAG + (_CERTIFICATES.get(found, "") if isinstance(found, str) else "")


Certificate = Annotated[
    Annotated[LetsEncryptGatewayCertificate, Tag(TAG + "LetsEncryptGatewayCertificate")]
    | Annotated[ACMGatewayCertificate, Tag(TAG + "ACMGatewayCertificate")]
    | Annotated[GCPCertificateManagerGatewayCertificate, Tag(TAG + "GCPCertificateManagerGatewayCertificate")],
    Discriminator(
        _arm, custom_error_type="unknown-type", custom_error_message="one of `lets-encrypt`, `acm` and `gcp-cm`"
    ),
]


class GatewayConfiguration(Spec):
    """A gateway."""

    type: Literal["gateway"] = Field(default="gateway", description="`gateway`.")
    name: str | None = Field(default=None, description="The name of the gateway; a random one unless set.")
    default: bool | None = Field(
        default=None, description="Make it the default; unless set, the first gateway is.", exclude_if=unset
    )
    backend: BackendName = Field(description="The backend to create it in.")
    region: str = Field(description="The region to create it in.")
    instance_type: str | None = Field(
        default=None, description="The instance type; a small one unless set.", min_length=1
    )
    domain: str | None = Field(
        default=None,
        description="The domain whose subdomains the services get; can contain `${{ run.project_name }}`.",
    )
    public_ip: bool = Field(default=True, description="Give it a public address.")
    load_balancer: ALBGatewayLoadBalancer | None = Field(
        default=None, description="Put a load balancer in front of it.", exclude_if=unset
    )
    certificate: Certificate | None = Field(
        default=LetsEncryptGatewayCertificate(), description="The certificate; null for none."
    )
    replicas: Whole | None = Field(default=None, description="How many machines; 1 unless set.", ge=1, le=9)
    tags: Tags | None = Field(default=None, description="Tags for its resources in the cloud.")

    @model_validator(mode="after")
    def _together(self) -> GatewayConfiguration:
        found = []
        kind = self.certificate.type if self.certificate else None
        if kind == "lets-encrypt":
            if not self.public_ip:
                found.append(
                    ("exclusive", "Let's Encrypt must reach the gateway", "write `certificate: null`", "public_ip")
                )
            if (self.replicas or 1) > 1:
                found.append(
                    (
                        "exclusive",
                        "Let's Encrypt works with one replica",
                        "write `certificate: null`, or remove `replicas`",
                        "replicas",
                    )
                )
        if kind == "acm" and self.backend != "aws":
            found.append(("exclusive", "`acm` is a certificate of AWS", "use `lets-encrypt`", "certificate"))
        if kind == "gcp-cm" and self.backend != "gcp":
            found.append(
                ("exclusive", "`gcp-cm` is a certificate of Google Cloud", "use `lets-encrypt`", "certificate")
            )
        if found:
            raise faults(found)
        return self


class GatewaySpec(Spec):
    """A gateway as it is submitted."""

    configuration: GatewayConfiguration
    configuration_path: str | None = None

"""Unsupported parts of a gateway's configuration, by path."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.specs.gateways import GatewaySpec, ProviderGatewayCertificate
from chalicelib.errors import Problem
from chalicelib.planning.kernel.field_support import NotBuilt, refused

GATEWAY_NOT_BUILT: dict[str, NotBuilt] = {
    "configuration.public_ip": NotBuilt(
        "a gateway gets a public address, because the callers of its services must reach it",
        "remove it, or run the gateway on hosts of your network: `fleet: NAME`",
        (True,),
    ),
    "configuration.load_balancer": NotBuilt(
        "nothing stands in front of a gateway",
        "remove it; with `replicas`, point the domain's DNS record at all of them",
    ),
}


def gateway_refusals(spec: GatewaySpec) -> list[Problem]:
    """Problems for every unsupported field of a gateway."""
    return [*refused(spec, GATEWAY_NOT_BUILT), *_provider_certificate(spec)]


def _provider_certificate(spec: GatewaySpec) -> Iterator[Problem]:
    """Problems of a certificate that a provider keeps: only load balancers could use it, and those aren't supported."""
    certificate = spec.configuration.certificate
    if isinstance(certificate, ProviderGatewayCertificate):
        why = NotBuilt(
            f"certificates of {certificate.OWNER} are only for its load balancers",
            "write `certificate: {type: lets-encrypt}`, or null",
        )
        fields = [name for name in type(certificate).model_fields if name != "type"]
        yield from refused(spec, {f"configuration.certificate.{name}": why for name in fields})

"""Which parts of a gateway's configuration aren't built, by path."""

from __future__ import annotations

from chalicelib.domain.specs.gateways import GatewaySpec
from chalicelib.errors import Problem
from chalicelib.planning.kernel.field_support import NotBuilt, refused

GATEWAY_NOT_BUILT: dict[str, NotBuilt] = {
    "configuration.public_ip": NotBuilt(
        "a gateway gets a public address, because whoever calls its services must reach it",
        "remove it, or run the gateway on hosts of your network: `fleet: NAME`",
        (True,),
    ),
    "configuration.load_balancer": NotBuilt(
        "nothing stands in front of a gateway",
        "remove it; with `replicas`, point the domain's DNS record at all of them",
    ),
    "configuration.certificate.arn": NotBuilt(
        "certificates of AWS are only for its load balancers", "write `certificate: {type: lets-encrypt}`, or null"
    ),
    "configuration.certificate.name": NotBuilt(
        "certificates of Google Cloud are only for its load balancers",
        "write `certificate: {type: lets-encrypt}`, or null",
    ),
}


def gateway_refusals(spec: GatewaySpec) -> list[Problem]:
    """What a gateway asks for that isn't built."""
    return list(refused(spec, GATEWAY_NOT_BUILT))

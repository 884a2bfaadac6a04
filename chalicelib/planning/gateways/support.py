"""Which parts of a gateway's configuration are built: one table of its fields, as `support` has of runs and fleets."""

from __future__ import annotations

from chalicelib.domain.specs.gateways import GatewaySpec
from chalicelib.errors import Problem
from chalicelib.planning.kernel.field_support import NotBuilt, Support, Supported, not_built, refused

GIVEN = "tests/usecases/services/test_uploaded_certificates.py"
PLANS = "tests/api/test_gateways.py"
MACHINES = "tests/planning/gateways/test_gateway_machines.py"


def _plans(*names: str) -> dict[str, Support]:
    return {f"configuration.{name}": Supported(f"{PLANS}::test_field[{name}]") for name in names}


GATEWAY: dict[str, Support] = {
    "configuration_path": Supported(f"{PLANS}::test_the_path_of_its_file_comes_back_with_the_plan"),
    **_plans("type", "name", "default", "fleet", "backend", "region", "domain", "http_port", "https_port", "replicas"),
    **_plans("certificate.type"),
    "configuration.certificate.certificate": Supported(f"{GIVEN}::test_its_hosts_are_shown_it"),
    "configuration.certificate.key": Supported(f"{GIVEN}::test_its_hosts_are_shown_it"),
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
    "configuration.instance_type": Supported(f"{MACHINES}::test_a_named_type_is_bought_whatever_it_is"),
    "configuration.tags": Supported(f"{MACHINES}::test_a_named_type_is_bought_whatever_it_is"),
}
_NOT_BUILT = not_built(GATEWAY, "")


def gateway_refusals(spec: GatewaySpec) -> list[Problem]:
    """What a gateway asks for that isn't built."""
    return list(refused(spec, _NOT_BUILT))

"""Checks that the credentials work, that they have every needed permission, and that each region can be used. All
problems are reported at once. Nothing is created for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.images import find_chosen, find_usual
from chalicelib.backends.gcp.network import GcpNetworks
from chalicelib.backends.gcp.places import GcpPlaces
from chalicelib.backends.kit.checking import must_exist
from chalicelib.backends.kit.tables import table
from chalicelib.errors import MissingPermission, Unfit

_OF: Mapping[str, Sequence[str]] = table("gcp/permissions.toml")
ADDRESSES, NAT = "compute.subnetworks.useExternalIp", "compute.routers.list"
ACCOUNT = "compute.instances.setServiceAccount"


def check(clients: GcpClients, config: GCPBackendConfig, places: GcpPlaces, networks: GcpNetworks) -> None:
    """Raises InvalidCredentials, MissingPermission with every permission that is missing, or Unfit with every region
    that can't have machines."""
    must_exist(
        lambda: clients.call("projects.get"),
        f"There is no project {config.project_id}, or these credentials can't see it.",
        "Correct `project_id`: it is the project's id, not its name or number.",
    )
    _permitted(clients, config)
    networks.forget()
    places.forget()
    known = places.all()
    for given, hint in (
        (config.regions, "Correct `regions`, or take it out."),
        (config.subnetworks, "Correct `subnetworks`: its keys are regions."),
    ):
        if unknown := sorted(set(given or ()).difference(known)):
            text = f"Google has no region {', '.join(unknown)} for the project {config.project_id}."
            raise Unfit(text, hint=hint)
    find_usual(clients)
    for name, chosen in (config.gpudirect or {}).items():
        find_chosen(clients, name, chosen.image)
    if wrong := list(_unusable(config, networks)):
        raise Unfit(" ".join(wrong))


def needed(*, shared: bool, public: bool, nat: bool, account: bool) -> tuple[Sequence[str], Sequence[str]]:
    """The permissions that calls need in the machines' project, and in the VPC's. The guide has a role with them."""
    own = [*_OF["machines"], *([ACCOUNT] if account else [])]
    network = [*_OF["network"], *([ADDRESSES] if public else []), *([NAT] if nat else [])]
    return (own, network) if shared else ([*own, *_OF["rules"], *network], [])


def _permitted(clients: GcpClients, config: GCPBackendConfig) -> None:
    shared = config.vpc_project_id is not None
    nat = not config.public_ips and config.nat_check and not shared
    own, network = needed(
        shared=shared, public=config.public_ips, nat=nat, account=config.vm_service_account is not None
    )
    missing = sorted(set(own) - clients.allowed(own))
    text = f"The credentials lack permissions in {config.project_id}: {', '.join(missing)}." if missing else ""
    if network:
        there = sorted(set(network) - clients.allowed(network, config.vpc_project_id or ""))
        text += f" They lack permissions in {config.vpc_project_id}: {', '.join(there)}." if there else ""
    if text:
        raise MissingPermission(text.strip())


def _unusable(config: GCPBackendConfig, networks: GcpNetworks) -> Iterator[str]:
    subnets = networks.subnets()
    if config.regions is None and not subnets:
        yield f"The VPC {networks.name} of {networks.project} has no subnetwork that machines can use."
    for region in sorted({*(config.regions or subnets), *(config.subnetworks or ())}):
        if region not in subnets:
            try:
                networks.subnet(region)
            except Unfit as error:
                yield str(error)
        elif not config.public_ips and config.nat_check and config.vpc_project_id is None and not networks.nat(region):
            yield (
                f"Machines in {region} would have no way out: they get no public address, and no router of the VPC "
                f"{networks.name} has a NAT there. Make one, or set `nat_check: false` if there is another way."
            )

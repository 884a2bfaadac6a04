"""A host's network: its address for the other hosts of its fleet, or why it can't join them.

`internal_ip` sets the address of a host, and `network` the subnet of all. Without either, the hosts of a cluster
(`placement: cluster`) must share a subnet: the fleet stores the subnets that all of its hosts have, and a host that
would leave none is refused. Once a host has left, the subnets that only it lacked count again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import HostFacts, Instance, InstanceStatus
from chalicelib.domain.specs.fleets import FleetSpec

_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)
_CARRIERS = ipaddress.ip_network("100.64.0.0/10")  # RFC 6598; VPNs use it too


def detects(spec: FleetSpec) -> bool:
    """Must the hosts' shared subnet be detected? Otherwise the spec sets it, or it doesn't matter."""
    ssh = spec.configuration.ssh_config
    if ssh is None or spec.configuration.placement != "cluster":
        return False
    return ssh.network is None and not any(host.internal_ip for host in ssh.each)


def subnets(facts: HostFacts) -> tuple[str, ...]:
    """The private subnets of a host."""
    found = [_network(each) for each in facts.networks]
    return tuple(dict.fromkeys(str(each) for each in found if each is not None and each.num_addresses > 1))


def shared(known: tuple[str, ...], more: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The subnets that all share; an empty `known` doesn't restrict them."""
    for each in more:
        known = tuple(network for network in known if network in each) if known else each
    return known


def still_shared(fleet: Fleet, instances: Iterable[Instance]) -> tuple[str, ...]:
    """The subnets that the remaining hosts share; those that the fleet has already come first."""
    staying = [each.networks for each in instances if each.networks and each.status not in _LEAVING]
    common = shared((), staying)
    if staying and not set(fleet.networks) <= set(common):
        return fleet.networks  # a host's subnets have changed since it joined
    return (*(each for each in fleet.networks if staying), *(each for each in common if each not in fleet.networks))


def internal_address(instance: Instance, spec: FleetSpec, facts: HostFacts, networks: tuple[str, ...] = ()) -> str:
    """Where the other hosts reach it: its `internal_ip`, else its first address in the spec's `network` or in the first
    of the fleet's `networks`, if there are any."""
    ssh = spec.configuration.ssh_config
    network = ssh.network if ssh is not None else None
    if instance.host is not None and instance.host.internal_ip:
        return instance.host.internal_ip
    if detects(spec) and networks:
        network = networks[0]
    return next((each for each in facts.addresses if network is None or within(each, network)), "")


def misplaced_host(instance: Instance, fleet: Fleet, spec: FleetSpec, facts: HostFacts) -> str:
    """Why the host isn't in the required network; empty if it is."""
    ssh, host = spec.configuration.ssh_config, instance.host
    if ssh is None or host is None:
        return ""
    has = ", ".join(facts.addresses) or "none"
    if host.internal_ip and host.internal_ip not in facts.addresses:
        return f"it doesn't have the `internal_ip` {host.internal_ip}; its addresses are {has}"
    if ssh.network and not any(within(each, ssh.network) for each in facts.addresses):
        return f"it has no address in the `network` {ssh.network}; its addresses are {has}"
    return _outside(fleet, subnets(facts), has) if detects(spec) else ""


def _outside(fleet: Fleet, own: tuple[str, ...], has: str) -> str:
    mend = "set `network`, or `internal_ip` for each host, or `placement: any`"
    if not own:
        return f"it is in no private network that other hosts could share; its addresses are {has} (to fix it: {mend})"
    if fleet.networks and not shared(fleet.networks, [own]):
        networks = ", ".join(fleet.networks)
        text = f"it shares no network with the fleet's other hosts: it is in {', '.join(own)}, and they in {networks}"
        return f"{text} (to fix it: {mend})"
    return ""


def beside(machine: Instance, other: Instance, spec: FleetSpec) -> str:
    """The address at which one host of a fleet may reach another directly. Empty unless the fleet's spec says that its
    hosts share a network: two private networks may have the same addresses, so another machine could answer."""
    ssh = spec.configuration.ssh_config
    if ssh is None or machine.host is None or other.host is None or machine.fleet_id != other.fleet_id:
        return ""
    if machine.host.internal_ip and other.host.internal_ip:  # never set for a host that joined by itself
        return other.internal_ip
    networks = set(machine.networks) & set(other.networks) if detects(spec) else {ssh.network}
    addresses = (machine.internal_ip, other.internal_ip)
    share = any(all(within(address, network) for address in addresses) for network in networks if network)
    return other.internal_ip if share else ""


def within(address: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:  # an agent may report anything
        return False


def _network(interface: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        found = ipaddress.ip_interface(interface).network
    except ValueError:  # an agent may report anything
        return None
    return found if found.is_private or found.overlaps(_CARRIERS) else None

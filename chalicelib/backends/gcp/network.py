"""The machines' network: a subnetwork in each region of one VPC, and rules of its firewall for our network tags.

Nothing connects to a machine from outside, so the rule for members opens nothing to the world: it lets the machines of
one installation reach each other. A gateway's machine has another tag, whose rule opens its ports. Rules are free and
shared, so they aren't deleted. In another project's VPC, its owner makes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.interfaces import PROFILE, Fabric
from chalicelib.backends.gcp.operations import carried_out
from chalicelib.backends.gcp.places import last
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.tables import table
from chalicelib.domain.owner import mark
from chalicelib.errors import AlreadyThere, Unfit

_BODIES = table("gcp/network.toml")


class GcpNetworks:
    def __init__(self, clients: GcpClients, config: GCPBackendConfig, now: Now) -> None:
        self._clients, self._config = clients, config
        self.project = config.vpc_project_id or config.project_id
        self.name = config.vpc_name or "default"
        self.path = f"projects/{self.project}/global/networks/{self.name}"
        self._subnets: LookupCache[Mapping[str, str]] = LookupCache(now)
        self._rules: LookupCache[str] = LookupCache(now)
        self._fabrics: LookupCache[Fabric] = LookupCache(now)

    def subnets(self) -> Mapping[str, str]:
        """A subnetwork for each region that has one, as `projects/…/subnetworks/…`."""
        return self._subnets.get("", self._find)

    def fabric(self, region: str) -> Fabric:
        """The further networks, as far as they reach into the region."""
        extra, rdma = self._config.extra_vpcs or (), next(iter(self._config.roce_vpcs or ()), "")
        if not extra and not rdma:
            return Fabric()
        return self._fabrics.get(region, lambda: self._fabric(region, extra, rdma))

    def _fabric(self, region: str, extra: Sequence[str], rdma: str) -> Fabric:
        inside = {name: self._inside(name, region) for name in (*extra, *([rdma] if rdma else []))}
        zone = ""
        if rdma and inside[rdma]:
            profile = last(
                str(self._clients.call("networks.get", network=rdma, project=self.project).get("networkProfile"))
            )
            zone = profile.removesuffix(PROFILE) if profile.endswith(PROFILE) else ""
        first = [inside[name][0] for name in extra if inside[name]]
        return Fabric(first, inside.get(rdma, ()), zone)

    def _inside(self, vpc: str, region: str) -> list[str]:
        path = f"projects/{self.project}/global/networks/{vpc}"
        return sorted(
            (subnet for network, subnet in self._usable() if _is(network, path) and f"/regions/{region}/" in subnet),
            key=lambda subnet: (len(subnet), subnet),
        )

    def subnet(self, region: str) -> str:
        """Raises Unfit if there is none."""
        found = self.subnets().get(region)
        if found is None:
            named = (self._config.subnetworks or {}).get(region)
            what = f"subnetwork {named}" if named else "subnetwork that machines can use"
            raise Unfit(
                f"The VPC {self.name} of {self.project} has no {what} in {region}.",
                hint="Make one there, correct `vpc_name` or `subnetworks`, or take the region out of `regions`.",
            )
        return found

    def tags(self, install: str, ports: Sequence[int] = ()) -> list[str]:
        """The network tags of a machine, once there are rules for them."""
        members = f"dstack-{mark(install)}"
        tags = {members: "members"}
        if ports:
            tags["-".join([members, *map(str, ports)])] = "gateway"
        if self._config.vpc_project_id is None:
            for tag, kind in tags.items():
                self._rules.get(tag, partial(self._ruled, tag, kind, ports))
        return list(tags)

    def nat(self, region: str) -> bool:
        """Has a router of the VPC a NAT there?"""
        routers = self._clients.pages("routers.list", region=region)
        return any(each.get("nats") and _is(each.get("network", ""), self.path) for each in routers)

    def forget(self) -> None:
        """Drops what is cached, because it may be out of date."""
        self._subnets.clear()
        self._rules.clear()
        self._fabrics.clear()

    def _find(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        named = self._config.subnetworks or {}
        for network, path in sorted(self._usable(), key=lambda pair: pair[1]):
            region = path.split("/")[3]
            if _is(network, self.path) and last(path) == named.get(region, last(path)):
                found.setdefault(region, path)
        return found

    def _usable(self) -> Iterator[tuple[str, str]]:
        """Network and path of each subnetwork that machines can be in."""
        for each in self._clients.pages("subnetworks.listUsable", project=self.project):
            if each.get("purpose", "PRIVATE") in ("PRIVATE", "PRIVATE_RFC_1918"):
                yield str(each["network"]), _path(str(each["subnetwork"]))

    def _ruled(self, tag: str, kind: str, ports: Sequence[int]) -> str:
        """The rule for a tag in this VPC, which is made unless it exists."""
        name = f"{tag}-{hashlib.sha256(self.path.encode()).hexdigest()[:8]}"
        if self._clients.find("firewalls.get", firewall=name) is None:
            values = {"name": name, "network": self.path, "tag": tag, "ports": list(map(str, ports))}
            body = filled({**_BODIES["rule"], **_BODIES[kind]}, values)
            with suppress(AlreadyThere):  # somebody else has just made it
                carried_out(self._clients, "firewalls.insert", body=body)
        return name


def _path(url: str) -> str:
    """`projects/…` of a resource's address."""
    return url[url.index("projects/") :]


def _is(url: str, path: str) -> bool:
    return url.endswith(path)

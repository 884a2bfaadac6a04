"""The machines' network: a subnet in each region, and the security group that closes it to the world.

Nothing connects to a machine from outside, so the group has no rule of its own: Azure's own ones let machines of a
network reach each other, and out. A gateway's machine is in a group that opens its ports instead. Unless a network is
given, one is made in the backend's resource group, which is made too unless it is given. All of these are free and
shared, so they aren't deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.places import Body, properties, region_named, regions_of
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.checking import must_exist
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.tables import table
from chalicelib.errors import Gone, Transient, Unfit

SPACE = "10.0.0.0/16"  # 172.16.0.0/16 is InfiniBand's
SUBNET = "machines"
_BODIES = table("azure/network.toml")
_RESERVED = ("gatewaysubnet", "azurefirewallsubnet", "azurefirewallmanagementsubnet", "azurebastionsubnet")


class AzureNetworks:
    def __init__(self, client: AzureClient, now: Now) -> None:
        self._client, self._config = client, client.config
        self._known: LookupCache[str] = LookupCache(now)
        self._networks = {region_named(region): name for region, name in (client.config.vpc_ids or {}).items()}
        self._subnets = {region_named(region): name for region, name in (client.config.subnet_ids or {}).items()}

    def subnet(self, region: str) -> str:
        """Its id. Raises Unfit if a network that was given isn't there, or has no subnet for machines."""
        return self._known.get(region, lambda: self._subnet(region))

    def group(self, region: str, ports: Sequence[int] = ()) -> str:
        """The id of the security group that opens these ports to the world, and no other."""
        name = "-".join([f"dstack-{region}", *(["gateway"] if ports else []), *map(str, ports)])
        return self._known.get(name, lambda: self._group(region, name, ports))

    def ensure_resource_group(self) -> None:
        """One that was given is expected to be there."""
        if self._config.resource_group is None:
            self._known.get("the resource group", self._resource_group)

    def forget(self) -> None:
        """Drops what is cached, because it is out of date."""
        self._known.clear()

    # --- subnets -----------------------------------------------------------------------------------------------------

    def _subnet(self, region: str) -> str:
        if (subnet := self._subnets.get(region)) is not None:
            group, network, name = subnet.split("/")
            path = f"{self._client.ids.of('network', network, group)}/subnets/{name}"
            body = self._found(path, f"the subnet {subnet} that `subnet_ids` names", region)
            if why := self._unfit(body, peered=self._is_peered(path)):
                raise Unfit(f"The subnet {subnet} of {region} can't have machines: {why}.")
            return path
        if (given := self._networks.get(region)) is not None:
            group, network = given.split("/")
            return self._of_network(self._client.ids.of("network", network, group), given, region)
        if self._networks or self._subnets:
            raise Unfit(
                f"Neither `vpc_ids` nor `subnet_ids` has a network for {region}.",
                hint="Name one there, or take the region out of `regions`.",
            )
        return self._own(region)

    def _of_network(self, path: str, given: str, region: str) -> str:
        body = self._found(path, f"the network {given} that `vpc_ids` names", region)
        inside = properties(body).get("subnets") or ()
        peered = bool(properties(body).get("virtualNetworkPeerings"))
        fits = {str(each["name"]): self._unfit(each, peered=peered) for each in inside}
        for name in sorted(fits):
            if not fits[name]:
                return f"{path}/subnets/{name}"
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(fits.items())) or "it has none"
        raise Unfit(f"No subnet of the network {given} in {region} can have machines: {why}.")

    def _found(self, path: str, what: str, region: str) -> Body:
        body: Body = must_exist(
            lambda: self._client.call("GET", path, region=region),
            f"The subscription doesn't have {what} for {region}.",
            "Create it, or correct that.",
        )
        if "location" in body and region_named(str(body["location"])) != region:
            raise Unfit(f"{what[0].upper()}{what[1:]} for {region} is in {body['location']}.")
        return body

    def _is_peered(self, subnet: str) -> bool:
        if self._config.public_ips:
            return False  # which doesn't matter then
        network: Body = self._client.call("GET", subnet.partition("/subnets/")[0])
        return bool(properties(network).get("virtualNetworkPeerings"))

    def _unfit(self, subnet: Body, *, peered: bool) -> str:
        """Why machines can't be in it; empty if they can. Without public addresses they need another way out, or no
        agent could ever report."""
        has = properties(subnet)
        if str(subnet.get("name", "")).lower() in _RESERVED or has.get("delegations"):
            return "it is kept for a service of Azure"
        if self._config.public_ips or has.get("natGateway") or has.get("routeTable") or peered:
            return ""
        return "without public addresses it needs a NAT gateway, a route table or a peering"

    def _own(self, region: str) -> str:
        self.ensure_resource_group()
        path = self._client.ids.of("network", f"dstack-{region}")
        self._create_unless_there(path, region, filled(_BODIES["network"], {"space": SPACE, "subnet": SUBNET}))
        return f"{path}/subnets/{SUBNET}"

    # --- groups ------------------------------------------------------------------------------------------------------

    def _group(self, region: str, name: str, ports: Sequence[int]) -> str:
        self.ensure_resource_group()
        path = self._client.ids.of("security", name)
        rules = [filled(_BODIES["rule"], {"port": str(port), "priority": 100 + at}) for at, port in enumerate(ports)]
        self._create_unless_there(path, region, {"securityRules": rules} if rules else {})
        return path

    def _resource_group(self) -> str:
        path = self._client.ids.in_group().replace("resourceGroups", "resourcegroups")
        region = regions_of(self._config)[0]
        self._create_unless_there(path, region, None)
        return path

    def _create_unless_there(self, path: str, region: str, has: Mapping[str, Any] | None) -> None:
        try:
            self._client.call("GET", path, region=region)
        except Gone:
            body: dict[str, Any] = {"location": region, "tags": dict(self._config.tags or {})}
            gone = Transient if self._config.resource_group is None else Unfit
            self._client.call(
                "PUT",
                path,
                body=body if has is None else {**body, "properties": has},
                region=region,
                meanings={"ResourceGroupNotFound": gone},
            )

"""Partitions of InfiniBand networks: the placement groups of types that have InfiniBand. Such a machine is created in a
partition or not at all, so outside of any group it has one of its own, which ends with it. Other machines of a cluster
reach each other in the location's network, and need no group: its handle stands for nothing at Crusoe.

A network has its own stock of each type, which may run out before the stock of machines does. A partition costs
nothing, is there at once, and can't be deleted before its last machine is gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.backends.crusoe.client import NETWORKS, PARTITIONS, CrusoeClient
from chalicelib.backends.crusoe.launch import has_fabric
from chalicelib.backends.kit.groups import GROUP, is_nothing, no_group
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.owners import owned_group
from chalicelib.backends.spi import GroupRequest, OwnedGroup
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import Gone, InsufficientCapacity


class Partitions:
    def __init__(self, client: CrusoeClient) -> None:
        self._client = client

    def create(self, request: GroupRequest) -> Handle:
        if not has_fabric(request.offer.instance.name):
            return no_group(request, "no InfiniBand")
        return self.made(request.name, request.offer, GROUP)

    def made(self, name: str, offer: Offer, kind: str) -> Handle:
        """By its name, what an earlier call made."""
        found = sorted(str(each["id"]) for each in self._client.listed(PARTITIONS) if each["name"] == name)
        if not found:
            body = {"name": name, "ib_network_id": self._network(offer)}
            found = [self._client.call("POST", *PARTITIONS, body=body, region=offer.region)["id"]]
        return located(kind, found[0], offer.region)

    def check(self, handle: Handle) -> None:
        """Raises Gone if it isn't there."""
        if self._client.found(PARTITIONS, handle.id) is None:
            raise Gone(f"Crusoe has no InfiniBand partition {handle.id}.")

    def delete(self, handle: Handle) -> None:
        """Raises InUse while a machine is in it."""
        if is_nothing(handle):
            raise Gone(f"The machines of {handle.id} needed no group.")
        self.check(handle)
        self._client.call("DELETE", *PARTITIONS, handle.id)

    def list_owned(self) -> Iterator[OwnedGroup]:
        for handle, name in self.named(GROUP):
            yield from owned_group(handle, {}, name)

    def named(self, kind: str, region: str = "") -> Iterator[tuple[Handle, str]]:
        """All partitions of the region, or of all of them, with their names."""
        found = list(self._client.listed(PARTITIONS))
        networks = self._client.listed(NETWORKS) if found else ()
        regions = {str(each["id"]): str(each["location"]) for each in networks}
        for body in found:
            where = regions.get(str(body["ib_network_id"]), "")
            if region in ("", where):
                yield located(kind, body["id"], where), str(body["name"])

    def _network(self, offer: Offer) -> str:
        """The network with the most room for machines of the offer."""
        room = [
            (int(each["quantity"]), str(network["id"]))
            for network in self._client.listed(NETWORKS)
            for each in network["capacities"]
            if (network["location"], each["slice_type"]) == (offer.region, offer.instance.name)
        ]
        most, network = max(room, default=(0, ""))
        if not most:
            raise InsufficientCapacity(f"No InfiniBand network in {offer.region} has room for {offer.instance.name}.")
        return network

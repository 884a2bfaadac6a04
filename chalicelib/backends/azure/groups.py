"""What keeps the machines of a cluster close together, by what they are.

InfiniBand works between the machines of an availability set: it has no zones, and Azure has no spot machines in one.
Others are in a proximity placement group, which is bound to a zone if the size is in any; it only exists for the size
that it is made for. Both are free. Azure accepts no token for them, and their names are unique.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.config import AzureBackendConfig
from chalicelib.backends.azure.launch import AVAILABILITY
from chalicelib.backends.azure.network import AzureNetworks
from chalicelib.backends.azure.places import TAGS, Body, handle_of, number_of, properties, tags_of
from chalicelib.backends.kit.groups import GROUP
from chalicelib.backends.kit.owners import labels, owned_group
from chalicelib.backends.kit.regions import region_in
from chalicelib.backends.spi import GroupRequest, OwnedGroup
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone, InsufficientCapacity, InUse, Unfit

PROXIMITY = "proximity"
DOMAINS = 2  # of faults and updates: the fewest that all regions have


class AzureGroups:
    def __init__(self, client: AzureClient, config: AzureBackendConfig, networks: AzureNetworks) -> None:
        self._client, self._config, self._networks = client, config, networks

    def create(self, request: GroupRequest) -> Handle:
        if request.offer.reservation:
            raise Unfit(
                f"Machines of the capacity reservation group {request.offer.reservation} can't be kept close together.",
                hint="Leave out `placement: cluster`, or the reservation.",
            )
        kind = AVAILABILITY if request.offer.backend_data.get("rdma") else PROXIMITY
        if kind == AVAILABILITY and request.offer.instance.resources.spot:
            raise Unfit(
                f"Azure has no spot machines with InfiniBand between them, such as {request.offer.instance.name}.",
                hint="Use `spot_policy: on-demand` for this cluster.",
            )
        path = self._client.ids.of(kind, request.name)
        found = self._client.ours(path, f"group {request.name}", request.tags)
        if found is None:
            self._networks.ensure_resource_group()
            found = self._created(request, kind, path)
        return handle_of(GROUP, path, found, type=kind)

    def _created(self, request: GroupRequest, kind: str, path: str) -> Body:
        tags = labels({**(self._config.tags or {}), **dict(request.tags)}, TAGS, "Azure")
        body: dict[str, Any] = {"location": request.offer.region, "tags": tags}
        if kind == AVAILABILITY:
            domains = {"platformFaultDomainCount": DOMAINS, "platformUpdateDomainCount": DOMAINS}
            return self._put(path, {**body, "sku": {"name": "Aligned"}, "properties": domains}, request.offer.region)
        body["properties"] = {
            "proximityPlacementGroupType": "Standard",
            "intent": {"vmSizes": [request.offer.instance.name]},
        }
        short: list[str] = []
        for zone in request.zones or request.offer.availability_zones or ("",):
            try:
                return self._put(path, {**body, **({"zones": [number_of(zone)]} if zone else {})}, request.offer.region)
            except InsufficientCapacity as error:
                short.append(error.message)
        raise InsufficientCapacity(f"No zone has room for a group of {request.offer.instance.name}: {'; '.join(short)}")

    def _put(self, path: str, body: dict[str, Any], region: str) -> Body:
        made: Body = self._client.call("PUT", path, body=body, region=region)
        return made

    def delete(self, handle: Handle) -> None:
        path = self._client.ids.at(handle.data.get("type", PROXIMITY), handle.id)
        body = self._client.find(path)
        if body is None:
            raise Gone(f"There is no group {handle.id} any more.")
        if properties(body).get("virtualMachines"):
            raise InUse(f"Machines are in the group {handle.id}.")
        self._client.call("DELETE", path, region=region_in(handle), meanings={"OperationNotAllowed": InUse})

    def list_owned(self) -> Iterator[OwnedGroup]:
        for kind in (AVAILABILITY, PROXIMITY):
            for body in self._client.in_group(kind):
                name = str(body["name"]).lower()
                handle = handle_of(GROUP, self._client.ids.of(kind, name), body, type=kind)
                yield from owned_group(handle, tags_of(body), name)

"""What keeps the machines of a cluster close together, by what they are.

InfiniBand works between the machines of an availability set: it has no zones, and Azure has no spot machines in one.
Others are in a proximity placement group, which is bound to a zone if the size is in any; it only exists for the size
that it is made for. Both are free. Azure accepts no token for them, and their names are unique.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.launch import AVAILABILITY
from chalicelib.backends.azure.network import AzureNetworks
from chalicelib.backends.azure.places import TAGS, Body, handle_of, number_of, properties, tags_of
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.groups import GROUP
from chalicelib.backends.kit.owners import labels, owned_group
from chalicelib.backends.kit.regions import region_in
from chalicelib.backends.kit.tables import table
from chalicelib.backends.spi import GroupRequest, OwnedGroup
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone, InsufficientCapacity, InUse, Unfit

PROXIMITY = "proximity"
_BODIES = table("azure/groups.toml")


class AzureGroups:
    def __init__(self, client: AzureClient, networks: AzureNetworks) -> None:
        self._client, self._networks = client, networks

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
        found = self._client.find_ours(path, f"group {request.name}", request.tags)
        if found is None:
            self._networks.ensure_resource_group()
            found = self._created(request, kind, path)
        return handle_of(GROUP, path, found, type=kind)

    def _created(self, request: GroupRequest, kind: str, path: str) -> Body:
        offer = request.offer
        tags = labels({**(self._client.config.tags or {}), **dict(request.tags)}, TAGS, "Azure")
        values = {"region": offer.region, "tags": tags, "size": offer.instance.name}
        zones = ("",) if kind == AVAILABILITY else request.zones or offer.availability_zones or ("",)
        short: list[str] = []
        for zone in zones:
            body = filled(_BODIES[kind], {**values, "zone": number_of(zone) or None})
            try:
                return self._client.put(path, body, offer.region)
            except InsufficientCapacity as error:
                short.append(error.message)
        raise InsufficientCapacity(f"No zone has room for a group of {offer.instance.name}: {'; '.join(short)}")

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

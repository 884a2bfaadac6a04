"""EC2's placement groups. A group's machines are placed close together in one zone, which the first machine determines.

AWS accepts no token for a group. But names are unique in a region, so the name finds a group whose response was lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.places import filters, regions_of, tagged, tags_of
from chalicelib.backends.kit.owners import owned_group
from chalicelib.backends.kit.regions import listed_everywhere
from chalicelib.backends.spi import GroupRequest, OwnedGroup
from chalicelib.domain.instances import Handle
from chalicelib.errors import AlreadyThere, Transient, Unfit

_BURSTABLE = re.compile(r"t[0-9]")  # these families can't be in a group


class AwsGroups:
    def __init__(self, clients: Clients, config: AWSBackendConfig) -> None:
        self._clients, self._config = clients, config
        self._regions = regions_of(config)

    def create(self, request: GroupRequest) -> Handle:
        region, type_name = request.offer.region, request.offer.instance.name
        if _BURSTABLE.match(type_name):
            raise Unfit(f"{type_name} can't be in a placement group.", hint="Use another instance type for a cluster.")
        tags = {"Name": request.name, **(self._config.tags or {}), **dict(request.tags)}
        try:
            self._clients.call(
                "ec2",
                region,
                "create_placement_group",
                GroupName=request.name,
                Strategy="cluster",
                TagSpecifications=tagged(["placement-group"], tags),
            )
        except AlreadyThere:
            self._adopt(request, region)
        return Handle(kind="group", id=request.name, data={"region": region})

    def _adopt(self, request: GroupRequest, region: str) -> None:
        found = self._clients.call(
            "ec2", region, "describe_placement_groups", Filters=filters(group_name=request.name)
        )["PlacementGroups"]
        if not found or found[0]["State"] not in ("pending", "available"):
            raise Transient(f"The placement group {request.name} of {region} is being created or deleted.")
        if dict(request.tags).items() - tags_of(found[0]).items():
            raise AlreadyThere(f"{region} has a placement group {request.name} that isn't ours.")

    def delete(self, handle: Handle) -> None:
        region = handle.data.get("region") or self._regions[0]
        self._clients.call("ec2", region, "delete_placement_group", GroupName=handle.id)

    def list_owned(self) -> Iterator[OwnedGroup]:
        return listed_everywhere(self._regions, self._owned)

    def _owned(self, region: str) -> Iterator[OwnedGroup]:
        found = self._clients.call("ec2", region, "describe_placement_groups", Filters=filters(tag_key="dstack-group"))[
            "PlacementGroups"
        ]
        for body in found:
            if body["State"] != "deleted":
                handle = Handle(kind="group", id=str(body["GroupName"]), data={"region": region})
                yield from owned_group(handle, tags_of(body))

"""Placement groups: compact placement policies, which keep machines of one zone close together.

A policy is of a region, and its first machine determines the zone. Google accepts a name once, so the name finds a
policy whose response was lost. Policies have no labels, so their tags are in the description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.launch import request_id
from chalicelib.backends.gcp.operations import carried_out
from chalicelib.backends.gcp.places import last
from chalicelib.backends.kit.owners import owned_group
from chalicelib.backends.spi import GroupRequest, OwnedGroup
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import CALLED
from chalicelib.errors import AlreadyThere, Transient, Unfit

_GROUPED = re.compile(r"(a2|a3|a4|a4x|c2|c2d|c3|c3d|g2|g4|h3|n2|n2d)-")

_TOPOLOGIES = {"a4x-highgpu-4g": {"gpuTopology": "1x72"}}  # one rack, whose GPUs NVLink connects


class GcpGroups:
    def __init__(self, clients: GcpClients) -> None:
        self._clients = clients

    def create(self, request: GroupRequest) -> Handle:
        region, type_name = request.offer.region, request.offer.instance.name
        if not _GROUPED.match(type_name):
            raise Unfit(f"{type_name} can't be in a placement group.", hint="Use another instance type for a cluster.")
        body = {
            "name": request.name,
            "description": " ".join(f"{key}={value}" for key, value in request.tags if key != CALLED),
            "groupPlacementPolicy": {"collocation": "COLLOCATED", **_TOPOLOGIES.get(type_name, {})},
        }
        token = request_id(request.token, region)
        try:
            carried_out(self._clients, "resourcePolicies.insert", region=region, body=body, requestId=token)
        except AlreadyThere:
            self._adopt(request.name, region)
        return Handle(kind="group", id=request.name, data={"region": region})

    def _adopt(self, name: str, region: str) -> None:
        found = self._clients.call("resourcePolicies.get", region=region, resourcePolicy=name)
        if found.get("status") not in ("CREATING", "READY"):
            raise Transient(f"The placement policy {name} of {region} is {found.get('status')}.")
        if "groupPlacementPolicy" not in found:
            raise AlreadyThere(f"{region} has a policy {name} that isn't ours.")

    def delete(self, handle: Handle) -> None:
        self._clients.call(
            "resourcePolicies.delete", region=handle.data.get("region", "none"), resourcePolicy=handle.id
        )

    def list_owned(self) -> Iterator[OwnedGroup]:
        for body in self._clients.pages("resourcePolicies.aggregatedList"):
            name, text = str(body["name"]), str(body.get("description", ""))
            tags = dict(part.split("=", 1) for part in text.split() if "=" in part)
            yield from owned_group(Handle(kind="group", id=name, data={"region": last(body["region"])}), tags, name)

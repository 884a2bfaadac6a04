"""The network cards that a machine has beside its first, for clusters: each in a network of its own (gVNIC), or, for
RDMA, all in one network that has a subnetwork for each.

A3 High and Mega machines work without them, so they get them only in a cluster, as many as there are `extra_vpcs`. A3
Ultra, A4 and A4X machines can't be made without them, so they are offered only where these networks are configured. A
network for RDMA is of one zone, which is in the name of its profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chalicelib.backends.kit.tables import table
from chalicelib.domain.offers import Interconnect
from chalicelib.errors import Unfit

GVNIC, RDMA = "GVNIC", "MRDMA"
PROFILE = "-vpc-roce"  # ends the name of such a network's profile, behind the zone

MOST: Mapping[str, int] = {"a3-edgegpu-8g": 4, "a3-highgpu-8g": 4, "a3-megagpu-8g": 8}  # further gVNICs of a type
RDMA_TYPES: Mapping[str, int] = {  # cards for RDMA, beside one further gVNIC
    "a3-ultragpu-8g": 8,
    "a4-highgpu-8g": 8,
    "a4x-highgpu-4g": 4,
}

ROCE = Interconnect(**table("gcp/roce.toml"))


@dataclass(frozen=True)
class Fabric:
    """The networks for further cards in a region."""

    extra: Sequence[str] = ()  # a subnetwork of each
    rdma: Sequence[str] = ()  # the subnetworks of the one for RDMA
    zone: str = ""  # where that is

    def holds(self, type_name: str) -> bool:
        """Has it what the type can't be made without?"""
        cards = RDMA_TYPES.get(type_name, 0)
        return not cards or bool(self.extra and len(self.rdma) >= cards)

    def cards(self, type_name: str, zone: str, *, in_cluster: bool) -> list[tuple[str, str]]:
        """Subnetwork and kind of each further card. Raises Unfit for a type that can't be made there."""
        if rdma := RDMA_TYPES.get(type_name, 0):
            if not self.holds(type_name) or zone != self.zone:
                where = self.zone or "no zone"
                raise Unfit(
                    f"{type_name} needs one of `extra_vpcs` and {rdma} subnetworks of `roce_vpcs`, in {where}.",
                    hint="Make them as the guide says.",
                )
            return [(self.extra[0], GVNIC), *((subnet, RDMA) for subnet in self.rdma[:rdma])]
        most = MOST.get(type_name, 0) if in_cluster else 0
        return [(subnet, GVNIC) for subnet in self.extra[:most]]

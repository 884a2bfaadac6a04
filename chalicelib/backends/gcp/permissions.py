"""The permissions that this backend's calls need. `check` asks Google which of them the credentials have; the guide
has a role with them."""

from __future__ import annotations

from collections.abc import Sequence

MACHINES: Sequence[str] = (
    "compute.acceleratorTypes.list",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.get",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.disks.use",
    "compute.disks.useReadOnly",
    "compute.futureReservations.list",
    "compute.instances.attachDisk",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.detachDisk",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.machineTypes.list",
    "compute.projects.get",
    "compute.regionOperations.get",
    "compute.regions.list",
    "compute.reservations.list",
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.get",
    "compute.resourcePolicies.list",
    "compute.resourcePolicies.use",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
)
RULES: Sequence[str] = (  # of the firewall, which in another project's VPC its owner makes
    "compute.firewalls.create",
    "compute.firewalls.get",
    "compute.globalOperations.get",
    "compute.networks.updatePolicy",
)
NETWORK: Sequence[str] = (  # in the VPC's project
    "compute.networks.get",
    "compute.subnetworks.list",
    "compute.subnetworks.use",
)
ADDRESSES = "compute.subnetworks.useExternalIp"
NAT = "compute.routers.list"
ACCOUNT = "compute.instances.setServiceAccount"


def needed(*, shared: bool, public: bool, nat: bool, account: bool) -> tuple[Sequence[str], Sequence[str]]:
    """Those in the machines' project, and those in the VPC's."""
    own = [*MACHINES, *([ACCOUNT] if account else [])]
    network = [*NETWORK, *([ADDRESSES] if public else []), *([NAT] if nat else [])]
    return (own, network) if shared else ([*own, *RULES, *network], [])

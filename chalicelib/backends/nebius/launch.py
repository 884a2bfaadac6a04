"""The request that creates a machine. It is a pure function, so a repeated request is the same to the byte.

These parts are there for a reason:

* The boot disk is managed: it is created and deleted with the machine, so none is left behind.
* `FAIL`: a machine that stops is left stopped. By default Nebius would start it again, and bill it.
* A preemptible machine follows the spot price; Nebius refuses it if nothing says what it may cost.
* A gateway's address stays the same until its machine is deleted; others are given back once their machine stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.groups import group_of
from chalicelib.backends.kit.owners import all_tags
from chalicelib.backends.kit.scripts import user_data
from chalicelib.backends.nebius.labels import labels_of
from chalicelib.backends.spi import CreateRequest

MOST_USER_DATA = 32_768  # bytes
IMAGE = "ubuntu24.04-cuda13.0"  # it has Docker and the driver, and starts on machines without GPUs as well
LEAST_DISK, LARGEST_DISK = 40, 8192  # GiB
DISK = "NETWORK_SSD"
PREEMPTIBLE: Mapping[str, Any] = {"preemptible": {"on_preemption": "STOP"}, "follows_spot_price": {}}


def specification(
    request: CreateRequest,
    subnet: str,
    groups: Sequence[str],
    tags: Mapping[str, str] | None,
    reserved: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Of the machine. `tags`: the account's own; `reserved`: whether and which reserved capacity it uses."""
    script = user_data(request, MOST_USER_DATA, "Nebius")
    platform, _, preset = request.offer.instance.name.partition(" ")
    spec: dict[str, Any] = {
        "resources": {"platform": platform, "preset": preset},
        "boot_disk": {"attach_mode": "READ_WRITE", "managed_disk": _disk(request, tags)},
        "network_interfaces": [
            {
                "name": "eth0",
                "subnet_id": subnet,
                "ip_address": {},
                "public_ip_address": {"static": True} if request.open_ports else {},
                "security_groups": [{"id": each} for each in groups],
            }
        ],
        "cloud_init_user_data": script,
        "recovery_policy": "FAIL",
        "reservation_policy": reserved,
    }
    if request.offer.instance.resources.spot:
        spec |= PREEMPTIBLE
    if group := group_of(request):
        spec["gpu_cluster"] = {"id": group.id}
    return spec


def _disk(request: CreateRequest, tags: Mapping[str, str] | None) -> dict[str, Any]:
    size = max(-(-request.disk_mib // 1024), LEAST_DISK)
    return {
        "name": request.name,
        "labels": labels_of(all_tags(request, tags)),
        "spec": {"type": DISK, "size_gibibytes": str(size), "source_image_family": {"image_family": IMAGE}},
    }

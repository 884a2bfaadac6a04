"""The body of a creation."""

from __future__ import annotations

from typing import Any

from chalicelib.backends.kit import docker_setup
from chalicelib.backends.kit.offers import GIB
from chalicelib.backends.kit.scripts import cloud_config
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.spi import CreateRequest
from chalicelib.backends.tensordock.catalog import DISK, LOCATION, STEP

IMAGE = "ubuntu2404"  # to which the hosts add NVIDIA's driver


def disk_gb(request: CreateRequest) -> int:
    """As large as requested, in the sizes that there are."""
    return max(DISK, -(-request.disk_mib // (STEP * GIB)) * STEP)


def instance(request: CreateRequest, name: str) -> dict[str, Any]:
    kind, has = request.offer.instance.name, request.offer.instance.resources
    setup, start = cloud_config(docker_setup.SCRIPT, docker_setup.PLACE), cloud_config(request.user_data)
    attributes = {
        "name": name,
        "type": "virtualmachine",
        "image": IMAGE,
        "resources": {
            "vcpu_count": has.cpus,
            "ram_gb": has.memory_mib // GIB,
            "storage_gb": disk_gb(request),
            "gpus": {kind: {"count": len(has.gpus)}},
        },
        "location_id": request.offer.backend_data[LOCATION],
        "useDedicatedIp": False,
        "ssh_key": NOBODYS_KEY,
        "cloud_init": {part: [*setup[part], *start[part]] for part in setup},
    }
    return {"data": {"type": "virtualmachine", "attributes": attributes}}

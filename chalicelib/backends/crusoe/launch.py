"""The request that creates a machine. It is a pure function, so a repeated one has the same request to the byte."""

from __future__ import annotations

import re
from typing import Any

from chalicelib.backends.crusoe.client import Body
from chalicelib.backends.kit.data_disk import prepare
from chalicelib.backends.kit.scripts import user_data
from chalicelib.backends.kit.ssh_key import NOBODYS_KEY
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.offers import Offer

GIB = 1024
OS_DISK = 128  # GiB, which every machine has, and which ends with it
LOCAL = "local_disks"  # in an offer's terms: the machine has some, which begin empty
MOST_SCRIPT = 64 * GIB  # bytes; Crusoe publishes no limit
SERIAL = "virtio-"  # before a disk's serial number, in its name under /dev/disk/by-id

AMD = "ubuntu-rocm:latest"
SXM, PCIE = "ubuntu22.04-nvidia-sxm-docker:latest", "ubuntu22.04-nvidia-pcie-docker:latest"
_FABRIC = re.compile(r"-(ib|roce)\.")


def has_fabric(name: str) -> bool:
    """Machines of the type are created in a partition of an InfiniBand network, or not at all."""
    return bool(_FABRIC.search(name))


def data_disk(request: CreateRequest) -> int:
    """The GiB of the data disk that it needs; 0: none."""
    if request.offer.backend_data.get(LOCAL) or request.disk_mib <= OS_DISK * GIB:
        return 0
    return -(-request.disk_mib // GIB)


def launch(request: CreateRequest, partition: str, disk: Body | None) -> dict[str, Any]:
    """`disk`: the data disk."""
    offer, script = request.offer, user_data(request, MOST_SCRIPT, "Crusoe")
    body: dict[str, Any] = {
        "name": request.name,
        "type": offer.instance.name,
        "location": offer.region,
        "image": image_of(offer),
        "ssh_public_key": NOBODYS_KEY,
        "startup_script": script,
        "install_crusoe_watch_agent": False,
    }
    if disk is not None:
        body["disks"] = [{"disk_id": disk["id"], "mode": "read-write", "attachment_type": "data"}]
    if disk is not None or offer.backend_data.get(LOCAL):
        device = f"/dev/disk/by-id/{SERIAL}{disk['serial_number']}" if disk is not None else ""
        body["startup_script"] = prepare(device) + script
    if partition:
        body["host_channel_adapters"] = [{"transport_partition_id": partition}]
    return body


def image_of(offer: Offer) -> str:
    """With Docker and the GPUs' driver. The plain image has no Docker, so machines without GPUs have another's."""
    gpus = offer.instance.resources.gpus
    if gpus and gpus[0].vendor == "amd":
        return AMD
    return SXM if "-sxm" in offer.instance.name else PCIE

"""The image that a machine starts from: Google's own, with Docker and the NVIDIA driver.

Machines without a GPU start from it, too, because Google updates it, and it has Docker. It has no driver for GPUs older
than Turing, so machines with these aren't offered. Nor has it a form for ARM: A4X machines start from Google's image of
Ubuntu with the driver, on which Docker is installed first. With GPUDirect, the account names the image.
"""

from __future__ import annotations

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.launch import BootImage
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.checking import must_exist
from chalicelib.backends.kit.clock import Now

PROJECT, FAMILY = "deeplearning-platform-release", "common-cu129-ubuntu-2204-nvidia-580"
ARM_PROJECT, ARM_FAMILY = "ubuntu-os-accelerator-images", "ubuntu-accelerator-2404-arm64-with-nvidia-580"
UNDRIVEN = frozenset({"P100", "P4", "V100", "K80"})


class GcpImages:
    def __init__(self, clients: GcpClients, config: GCPBackendConfig, now: Now) -> None:
        self._clients, self._config = clients, config
        self._images: LookupCache[BootImage] = LookupCache(now)

    def of(self, type_name: str) -> BootImage:
        """For machines of the type."""
        chosen = self._config.gpudirect_of(type_name)
        if chosen is not None:
            return self._images.get(chosen.image, lambda: find_chosen(self._clients, type_name, chosen.image))
        arm = is_arm(type_name)
        return self._images.get(str(arm), lambda: find_usual(self._clients, arm=arm))


def is_arm(type_name: str) -> bool:
    return type_name.startswith("a4x-")


def find_usual(clients: GcpClients, *, arm: bool = False) -> BootImage:
    """Raises Unfit if Google has retired it."""
    project, family = (ARM_PROJECT, ARM_FAMILY) if arm else (PROJECT, FAMILY)
    return must_exist(
        lambda: _found(clients, project, family, has_docker=not arm),
        f"Google no longer has the images {family} of {project}, from which machines start.",
        "Update dstack: each version has the images of its time.",
    )


def find_chosen(clients: GcpClients, type_name: str, image: str) -> BootImage:
    """The account's own."""
    _, project, *_, family = image.split("/")
    return must_exist(
        lambda: _found(clients, project, family),
        f"There is no image {image}, or these credentials can't see it.",
        f"Correct `gpudirect.{type_name}.image`, or give the credentials `roles/compute.imageUser` there.",
    )


def _found(clients: GcpClients, project: str, family: str, *, has_docker: bool = True) -> BootImage:
    newest = clients.call("images.getFromFamily", project=project, family=family)
    path = f"projects/{project}/global/images/family/{family}"
    return BootImage(path, int(newest.get("diskSizeGb", 0)), has_docker)

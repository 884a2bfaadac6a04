"""The image that a machine starts from: Google's own, with Docker and the NVIDIA driver.

Machines without a GPU start from it, too, because Google updates it, and it has Docker. It has neither a driver for
GPUs older than Turing nor a form for ARM, so such machines aren't offered.
"""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.launch import BootImage
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.domain.instants import Micros
from chalicelib.errors import Gone, Unfit

PROJECT, FAMILY = "deeplearning-platform-release", "common-cu129-ubuntu-2204-nvidia-580"
UNDRIVEN = frozenset({"P100", "P4", "V100", "K80"})


class GcpImages:
    def __init__(self, clients: GcpClients, now: Callable[[], Micros]) -> None:
        self._clients = clients
        self._images: LookupCache[BootImage] = LookupCache(now)

    def usual(self) -> BootImage:
        return self._images.get("", lambda: find_usual(self._clients))


def find_usual(clients: GcpClients) -> BootImage:
    """Raises Unfit if Google has retired it."""
    try:
        newest = clients.call("images.getFromFamily", project=PROJECT, family=FAMILY)
    except Gone as error:
        raise Unfit(
            f"Google no longer has the images {FAMILY} of {PROJECT}, from which machines start.",
            hint="Update dstack: each version has the images of its time.",
        ) from error
    return BootImage(f"projects/{PROJECT}/global/images/family/{FAMILY}", int(newest.get("diskSizeGb", 0)))

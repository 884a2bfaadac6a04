"""The carriers that a control plane has for containers whose image has no Python, one for each architecture."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from chalicelib.domain.programs import carrier_blob, newest_carrier
from chalicelib.errors import NotFound
from chalicelib.usecases.ports import FilePorts

if TYPE_CHECKING:
    from chalicelib.store.blobs import Blobs

SECONDS = 600  # for which an address that was given out is good
_SHA256 = re.compile(r"[0-9a-f]{64}")


def publish(blobs: Blobs, architecture: str, release: str, content: bytes) -> str:
    """Give out this carrier from now on. Returns its SHA-256, by which it stays available after newer ones."""
    digest = hashlib.sha256(content).hexdigest()
    blobs.put(carrier_blob(digest), content)
    blobs.put(newest_carrier(architecture), f"{release} {digest}".encode())
    return digest


def newest(blobs: Blobs, architecture: str) -> tuple[str, str]:
    """Its release and its SHA-256; both empty if there is none."""
    known = blobs.get(newest_carrier(architecture))
    release, _, digest = ("" if known is None else known.decode()).partition(" ")
    return release, digest


def content(plane: FilePorts, digest: str) -> bytes | str:
    """Its bytes, or the address where they are. Lambda answers with less than a carrier has."""
    if _SHA256.fullmatch(digest):
        name = carrier_blob(digest)
        found = plane.blobs.link(name, SECONDS) or plane.blobs.get(name)
        if found is not None:
            return found
    raise NotFound("This control plane has no such carrier.")

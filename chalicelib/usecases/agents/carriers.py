"""The carriers that a control plane has for containers whose image has no Python, one for each architecture."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from chalicelib.domain.programs import carrier_blob, is_digest, newest_carrier, newest_of
from chalicelib.errors import NotFound
from chalicelib.usecases.ports import FilePorts

if TYPE_CHECKING:
    from chalicelib.store.blobs import Blobs

SECONDS = 600  # for which an address that was given out is good


def ensure(blobs: Blobs, architecture: str, release: str, make: Callable[[str], bytes]) -> str:
    """Have the carrier of this release served, made if it is missing. Returns its SHA-256."""
    known, digest = newest(blobs, architecture)
    return digest if known == release else publish(blobs, architecture, release, make(architecture))


def publish(blobs: Blobs, architecture: str, release: str, content: bytes) -> str:
    """Serve this carrier from now on. Returns its SHA-256, under which it remains available after newer ones."""
    digest = hashlib.sha256(content).hexdigest()
    blobs.put(carrier_blob(digest), content)
    blobs.put(newest_carrier(architecture), f"{release} {digest}".encode())
    return digest


def newest(blobs: Blobs, architecture: str) -> tuple[str, str]:
    """Its release and its SHA-256; both empty if there is none."""
    return newest_of(blobs.get(newest_carrier(architecture)))


def content(plane: FilePorts, digest: str) -> bytes | str:
    """Its bytes, or the address where they are, because a carrier is larger than what Lambda may answer with."""
    if is_digest(digest):
        name = carrier_blob(digest)
        found = plane.blobs.link(name, SECONDS) or plane.blobs.get(name)
        if found is not None:
            return found
    raise NotFound("This control plane has no such carrier.")

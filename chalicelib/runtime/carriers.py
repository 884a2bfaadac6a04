"""Which carrier new containers get: the one that this version makes, where that can be made, else the last one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from chalicelib.errors import Refused
from chalicelib.usecases.agents import carriers

if TYPE_CHECKING:
    from chalicelib.store.blobs import Blobs

Make = Callable[[str], bytes]  # of an architecture; raises Refused if its packages can't be had

log = logging.getLogger(__name__)


def digest(blobs: Blobs, architecture: str, make: Make | None) -> str:
    """Its SHA-256; empty if there is none. `make`: None where another makes them (`infra.carriers`)."""
    from chalicelib.carrier.packages import release

    known, there = carriers.newest(blobs, architecture)
    if make is None or known == release():
        return there
    try:
        return carriers.publish(blobs, architecture, release(), make(architecture))
    except Refused as problem:
        log.warning("containers of images without Python get %s: %s %s", _instead(there), problem.message, problem.hint)
        return there


def _instead(digest: str) -> str:
    return "an older carrier" if digest else "none, and won't start"

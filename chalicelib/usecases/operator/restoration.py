"""What an operator sees of a restored control plane that only looks, and the word by which it acts again."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.restorations import Restoration
from chalicelib.engine import hold
from chalicelib.store import nouns
from chalicelib.usecases.ports import RecordPorts


def mark(plane: RecordPorts) -> Restoration | None:
    """None: it wasn't restored."""
    return nouns.find(plane.store, Restoration, keys.RESTORATION)


def go_on(plane: RecordPorts) -> Restoration | None:
    """Let it act again. Raises Refused while records of the moment are still missing."""
    return hold.go_on(plane.store, plane.clock)

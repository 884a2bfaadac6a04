"""What a control plane reports about itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chalicelib.usecases.context import Plane

SERVED_VERSION = "0.22.5"  # the client whose wire this is; clients compare nothing with it


def info() -> dict[str, str]:
    return {"server_version": SERVED_VERSION}


def usage(plane: Plane) -> dict[str, Any]:
    """How much space its data takes, and for how many days it keeps things: for the operator."""
    found = plane.measure()
    parts = [asdict(part) for part in found.parts]
    return {**info(), "parts": parts, "free": found.free, "days": asdict(plane.retention)}

"""What a control plane reports about itself."""

from __future__ import annotations

SERVED_VERSION = "0.22.5"  # the client whose wire this is; clients compare nothing with it


def info() -> dict[str, str]:
    return {"server_version": SERVED_VERSION}

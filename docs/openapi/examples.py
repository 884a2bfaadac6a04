"""Examples of calls and their answers, recorded from the API itself: of each operation the first that succeeds.

`GOLDEN=write` before the test of them records them anew. What is random or secret is replaced, and of long lists one
item is enough.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "examples.json"

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI…"
HIDDEN = {
    "ssh_public_key": KEY,
    "ssh_key_pub": KEY,
    "ssh_private_key": "-----BEGIN OPENSSH PRIVATE KEY-----\n…\n-----END OPENSSH PRIVATE KEY-----\n",
    "token": "…",
    "command": "curl -fsS https://dstack.example.com/agent/join.sh | sudo sh -s -- …",
}
SHOWN = 2  # items of a list


def presentable(value: Any) -> Any:
    """As it is published."""
    if isinstance(value, list):
        return [presentable(item) for item in value[:SHOWN]]
    if isinstance(value, dict):
        return {key: HIDDEN[key] if _hides(key, item) else presentable(item) for key, item in value.items()}
    return value


def _hides(key: str, value: Any) -> bool:
    return key in HIDDEN and isinstance(value, str) and value != ""

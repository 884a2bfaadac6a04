"""Owner tags as labels. Nebius publishes no rule for labels; what it refuses, it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chalicelib.domain.owner import CALLED

_SAFE = re.compile(r"[a-z0-9]([-_a-z0-9]{0,61}[a-z0-9])?")  # accepted for certain


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """The name that people gave something is left out if it might be refused: nothing is read from it."""
    return {key: value for key, value in tags.items() if key != CALLED or _SAFE.fullmatch(value)}


def marks_of(body: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
    """A resource's labels and name, which say whose it is."""
    metadata = body["metadata"]
    return metadata.get("labels", {}), str(metadata.get("name", ""))

"""How much a property is tried: as much as it says, or less if time is short."""

from __future__ import annotations

import os

SHORT = os.environ.get("HYPOTHESIS_PROFILE") == "fast"


def many(count: int) -> int:
    """Of examples that are drawn."""
    return min(count, 15) if SHORT else count


def seeds(count: int) -> range:
    """Of histories that follow from a number, each long."""
    return range(1 if SHORT else count)

"""How many examples a property is tried on: as many as it says, or fewer if time is short."""

from __future__ import annotations

import os


def many(count: int) -> int:
    return min(count, 15) if os.environ.get("HYPOTHESIS_PROFILE") == "fast" else count

"""What was written lately: the units whose records changed, for callers that follow them."""

from __future__ import annotations

from typing import NamedTuple


class Touched(NamedTuple):
    """Units that may have changed (`run/<id>`, `fleet/<id>`, …), and the mark from which to ask the next time."""

    units: frozenset[str]
    mark: str

"""Crusoe's prices, which its API doesn't say: they are the operator's. A row without a region is for all locations."""

from __future__ import annotations

from chalicelib.backends.price_file import OfflinePrices
from chalicelib.errors import Unfit

HINT = "Name a file by DSTACK_CATALOG_FILE, or a catalogue by DSTACK_CATALOG_URL, where the control plane runs."


class CrusoePrices:
    def __init__(self, file: OfflinePrices | None) -> None:
        self._file = file

    def of(self, name: str, region: str) -> float | None:
        """Dollars an hour of a machine, or a month of a GiB on disks of that type; None: nobody says it."""
        if self._file is None:
            return None
        rows = self._file.of("crusoe")
        return rows.get((name, region), rows.get((name, ""), (None, None)))[0]

    @property
    def origin(self) -> str:
        return self._file.origin if self._file else ""

    def check(self) -> None:
        """Raises Unfit if there is none at all."""
        if self._file is None:
            raise Unfit("Crusoe's API says no prices, and the control plane has none.", hint=HINT)
        if not self._file.of("crusoe"):
            raise Unfit(f"Crusoe's API says no prices, and {self._file.name} has none for it.", hint=HINT)

"""The operator's prices, of a provider whose API says none. A row without a region is for all regions."""

from __future__ import annotations

import logging
from collections.abc import Collection

from chalicelib.backends.price_file import UNKNOWN, OfflinePrices, Priced
from chalicelib.errors import BackendError, Unfit

log = logging.getLogger(__name__)

HINT = "Name a file by DSTACK_CATALOG_FILE, or a catalogue by DSTACK_CATALOG_URL, where the control plane runs."
SHOWN = 3  # types without a price that are named


class OperatorsPrices:
    def __init__(self, backend: str, provider: str, given: OfflinePrices | None) -> None:
        """`provider`: as people call it."""
        self._backend, self._provider, self._given = backend, provider, given

    def known(self) -> Priced:
        """Raises Unfit if there is none at all."""
        if self._given is None:
            raise Unfit(f"{self._provider}'s API says no prices, and the control plane has none.", hint=HINT)
        rows = self._given.of(self._backend)
        if not rows:
            raise Unfit(f"{self._provider}'s API says no prices, and {self._given.name} has none for it.", hint=HINT)
        return rows

    def of_disk(self, kind: str, region: str) -> float | None:
        """Dollars a month for a GiB; None: nobody says it, or its source can't be read, for which no volume waits."""
        try:
            return None if self._given is None else price_of(self._given.of(self._backend), kind, region)
        except BackendError as error:
            log.warning("the price of %s in %s isn't known: %s", kind, region, error)
            return None

    def origin(self, unpriced: Collection[str]) -> str:
        """Where they are from, and the types of which they say nothing."""
        named = sorted(unpriced)
        shown = ", ".join(named[:SHOWN]) + (f" and {len(named) - SHOWN} more" if len(named) > SHOWN else "")
        source = self._given.origin if self._given else ""
        return f"{source}, without {shown}" if named else source


def price_of(known: Priced, name: str, region: str) -> float | None:
    """Dollars an hour of a machine, or a month of a GiB on disks of that type; None: it isn't known."""
    return known.get((name, region), UNKNOWN)[0] or known.get((name, ""), UNKNOWN)[0]

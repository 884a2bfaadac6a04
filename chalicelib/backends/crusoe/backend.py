"""Crusoe Cloud as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from chalicelib.backends.crusoe.facts import FACTS
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfAccount, OfGroups, OfMachines, OfVolumes

if TYPE_CHECKING:
    from chalicelib.backends.crusoe.client import CrusoeClient
    from chalicelib.backends.crusoe.config import CrusoeBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class CrusoeBackend(OfAccount, OfMachines, OfGroups, OfVolumes):
    facts = FACTS
    _client: CrusoeClient

    def __init__(
        self,
        config: CrusoeBackendConfig,
        client: CrusoeClient | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider."""
        from chalicelib.backends.crusoe.catalog import CrusoeCatalog
        from chalicelib.backends.crusoe.client import CrusoeClient
        from chalicelib.backends.crusoe.disks import CrusoeDisks
        from chalicelib.backends.crusoe.machines import CrusoeMachines
        from chalicelib.backends.crusoe.partitions import Partitions
        from chalicelib.backends.kit.operators_prices import OperatorsPrices

        self._config, self._prices = config, OperatorsPrices("crusoe", "Crusoe", prices)
        self._client = client or CrusoeClient(config.creds, config.project_id, now, endpoint=endpoint)
        self._volumes = disks = CrusoeDisks(self._client, self._prices, now)
        self._groups = Partitions(self._client)
        self._catalog = CrusoeCatalog(self._client, self._prices, config.regions)
        self._machines = CrusoeMachines(self._client, disks, self._groups)

    def check(self) -> None:
        """The keys, all that is listed later, the regions, and whether there are prices."""
        from chalicelib.backends.crusoe.catalog import TYPES
        from chalicelib.backends.crusoe.client import DISKS, NETWORKS, PARTITIONS, VMS
        from chalicelib.backends.kit.checking import check_regions, problems, report

        paths = (("quotas",), TYPES, VMS, DISKS, PARTITIONS, NETWORKS)
        read = [partial(self._client.call, "GET", *path) for path in paths]
        report(
            problems(*read, partial(self._client.everybodys, "capacities")),
            hint=f"Is {self._config.project_id} the project, and what may the key's user do in it?",
        )
        check_regions("Crusoe", self._config.regions, self._client.everybodys("locations")["items"], "location")
        self._prices.known()

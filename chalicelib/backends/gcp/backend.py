"""Google's cloud as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created, and Google's
library with the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.backends.gcp.facts import FACTS
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import CatalogPart, OfAccount, OfGroups, OfMachines, OfVolumes

if TYPE_CHECKING:
    from chalicelib.backends.gcp.client import GcpClients
    from chalicelib.backends.gcp.config import GCPBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class GcpBackend(OfAccount, OfMachines, OfGroups, OfVolumes):
    facts = FACTS
    _client: GcpClients

    def __init__(
        self,
        config: GCPBackendConfig,
        clients: GcpClients | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for Google."""
        from chalicelib.backends.gcp.catalog import GcpCatalog
        from chalicelib.backends.gcp.client import COMPUTE, TPUS, GcpClients
        from chalicelib.backends.gcp.groups import GcpGroups
        from chalicelib.backends.gcp.machines import GcpMachines
        from chalicelib.backends.gcp.network import GcpNetworks
        from chalicelib.backends.gcp.places import GcpPlaces
        from chalicelib.backends.gcp.prices import GcpPrices
        from chalicelib.backends.gcp.tpu_backend import OffersWithTpus, WithTpus
        from chalicelib.backends.gcp.tpu_catalog import TpuCatalog
        from chalicelib.backends.gcp.tpu_client import TpuClient
        from chalicelib.backends.gcp.tpus import GcpTpus
        from chalicelib.backends.gcp.volumes import GcpVolumes

        self._config, self.facts = config, self.facts.with_(bundles=config.tpu)
        self._client = client = clients or GcpClients(config.creds, config.project_id, endpoint=endpoint, now=now)
        self._places, self._networks = GcpPlaces(client, config, now), GcpNetworks(client, config, now)
        machines = GcpMachines(client, config, self._places, self._networks, now)
        priced = GcpPrices(client, now, prices, (COMPUTE, TPUS) if config.tpu else (COMPUTE,))
        catalog = GcpCatalog(client, config, self._places, self._networks, priced, now)
        self._catalog: CatalogPart = catalog
        tpus = TpuClient(client, now)
        self._tpus = GcpTpus(tpus, config, self._networks, now)
        self._machines = WithTpus(machines, self._tpus, offered=config.tpu)
        if config.tpu:
            self._catalog = OffersWithTpus(catalog, TpuCatalog(tpus, config, self._places, self._networks, priced))
        self._groups = GcpGroups(client)
        self._volumes = GcpVolumes(client, config, self._places, priced, now)

    def check(self) -> None:
        from chalicelib.backends.gcp.checking import check

        check(self._client, self._config, self._places, self._networks)
        if self._config.tpu:
            self._tpus.check()

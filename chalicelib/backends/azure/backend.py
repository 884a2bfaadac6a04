"""Microsoft Azure as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.backends.azure.facts import FACTS
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfAccount, OfGroups, OfMachines, OfVolumes

if TYPE_CHECKING:
    from chalicelib.backends.azure.client import AzureClient
    from chalicelib.backends.azure.config import AzureBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class AzureBackend(OfAccount, OfMachines, OfGroups, OfVolumes):
    facts = FACTS
    _client: AzureClient

    def __init__(
        self,
        config: AzureBackendConfig,
        client: AzureClient | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider."""
        from chalicelib.backends.azure.catalog import AzureCatalog
        from chalicelib.backends.azure.client import AzureClient
        from chalicelib.backends.azure.groups import AzureGroups
        from chalicelib.backends.azure.machines import AzureMachines
        from chalicelib.backends.azure.network import AzureNetworks
        from chalicelib.backends.azure.prices import AzurePrices
        from chalicelib.backends.azure.volumes import AzureVolumes

        self._client = client or AzureClient(config, now, endpoint=endpoint)
        self._networks = AzureNetworks(self._client, now)
        self._machines = AzureMachines(self._client, self._networks, now)
        self._groups = AzureGroups(self._client, self._networks)
        priced = AzurePrices(self._client, now, prices)
        self._catalog = AzureCatalog(self._client, priced)
        self._volumes = AzureVolumes(self._client, self._networks, priced, now)

    def check(self) -> None:
        from chalicelib.backends.azure.checking import check

        check(self._client, self._networks)

"""Nebius as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created, and gRPC with
the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfAccount, OfGroups, OfMachines, OfVolumes
from chalicelib.backends.nebius.facts import FACTS

if TYPE_CHECKING:
    from chalicelib.backends.nebius.client import NebiusClient
    from chalicelib.backends.nebius.config import NebiusBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class NebiusBackend(OfAccount, OfMachines, OfGroups, OfVolumes):
    facts = FACTS
    _client: NebiusClient

    def __init__(
        self,
        config: NebiusBackendConfig,
        client: NebiusClient | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`prices` aren't needed: Nebius has a calculator."""
        from chalicelib.backends.kit.rpc import GrpcWire
        from chalicelib.backends.nebius.catalog import NebiusCatalog
        from chalicelib.backends.nebius.client import NebiusClient
        from chalicelib.backends.nebius.groups import NebiusGroups
        from chalicelib.backends.nebius.machines import NebiusMachines
        from chalicelib.backends.nebius.network import NebiusNetworks
        from chalicelib.backends.nebius.places import Places
        from chalicelib.backends.nebius.volumes import NebiusVolumes

        self._client = client or NebiusClient(config.creds, now, GrpcWire(endpoint))
        self._places = Places(self._client, config, now)
        networks = NebiusNetworks(self._client, self._places, config.tags, now)
        self._machines = NebiusMachines(self._client, config, self._places, networks, now)
        self._catalog = NebiusCatalog(self._client, self._places, config.fabrics)
        self._volumes = NebiusVolumes(self._client, config, self._places, now)
        self._groups = NebiusGroups(self._client, config, self._places, self._catalog)

    def check(self) -> None:
        from chalicelib.backends.nebius.checking import check

        check(self._client, self._places)

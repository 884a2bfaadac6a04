"""TensorDock as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfAccount, OfMachines
from chalicelib.backends.tensordock.facts import FACTS
from chalicelib.errors import Unfit

if TYPE_CHECKING:
    from chalicelib.backends.price_file import OfflinePrices
    from chalicelib.backends.tensordock.catalog import TensorDockCatalog
    from chalicelib.backends.tensordock.client import TensorDockClient
    from chalicelib.backends.tensordock.config import TensorDockBackendConfig


class TensorDockBackend(OfAccount, OfMachines):
    facts = FACTS
    _client: TensorDockClient
    _catalog: TensorDockCatalog

    def __init__(
        self,
        config: TensorDockBackendConfig,
        client: TensorDockClient | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider. `prices` is ignored: TensorDock says what each part costs."""
        from chalicelib.backends.tensordock.catalog import TensorDockCatalog
        from chalicelib.backends.tensordock.client import TensorDockClient
        from chalicelib.backends.tensordock.machines import TensorDockInstances

        self._config = config
        self._client = client or TensorDockClient(config.creds.api_token, now, endpoint=endpoint)
        self._catalog = TensorDockCatalog(self._client, now, config.regions)
        self._machines = TensorDockInstances(self._client, now, self._catalog)

    def check(self) -> None:
        """Its token, and the names of its regions. Locations are shown to anybody, so they prove nothing."""
        self._client.instances()
        if self._config.regions:
            known = self._catalog.regions()
            if wrong := [each for each in self._config.regions if each.lower() not in known]:
                raise Unfit(
                    f"TensorDock has no location {', '.join(wrong)}.",
                    hint=f"`regions` can have {', '.join(sorted(known))} at the moment.",
                )

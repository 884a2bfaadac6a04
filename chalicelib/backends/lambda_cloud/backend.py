"""Lambda as a backend. Calls of the protocol are delegated to its parts.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.backends.kit.checking import check_regions
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfAccount, OfMachines
from chalicelib.backends.lambda_cloud.facts import FACTS

if TYPE_CHECKING:
    from chalicelib.backends.lambda_cloud.catalog import LambdaCatalog
    from chalicelib.backends.lambda_cloud.client import LambdaClient
    from chalicelib.backends.lambda_cloud.config import LambdaBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class LambdaBackend(OfAccount, OfMachines):
    facts = FACTS
    _client: LambdaClient
    _catalog: LambdaCatalog

    def __init__(
        self,
        config: LambdaBackendConfig,
        client: LambdaClient | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider. `prices` is ignored: Lambda says what its types cost."""
        from chalicelib.backends.lambda_cloud.catalog import LambdaCatalog
        from chalicelib.backends.lambda_cloud.client import LambdaClient
        from chalicelib.backends.lambda_cloud.machines import LambdaInstances

        self._config = config
        self._client = client or LambdaClient(config.creds.api_key, now, endpoint=endpoint)
        self._catalog = LambdaCatalog(self._client, now, config.regions)
        self._machines = LambdaInstances(self._client, now, self._catalog)

    def check(self) -> None:
        """Its key, and the names of its regions: by one call, because a second one might be too early."""
        if not self._config.regions:
            self._client.instances()
            return
        check_regions("Lambda", self._config.regions, self._catalog.regions())

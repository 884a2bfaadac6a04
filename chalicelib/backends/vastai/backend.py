"""Vast.ai as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfMachines, OfMarket
from chalicelib.backends.vastai.facts import FACTS
from chalicelib.errors import Unfit

if TYPE_CHECKING:
    from chalicelib.backends.price_file import OfflinePrices
    from chalicelib.backends.vastai.client import VastAIClient
    from chalicelib.backends.vastai.config import VastAIBackendConfig


class VastAIBackend(OfMarket, OfMachines):
    facts = FACTS
    _client: VastAIClient

    def __init__(
        self,
        config: VastAIBackendConfig,
        client: VastAIClient | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider. `prices` is ignored: each of Vast.ai's offers has its own."""
        from chalicelib.backends.vastai.catalog import VastAICatalog
        from chalicelib.backends.vastai.client import VastAIClient
        from chalicelib.backends.vastai.machines import VastAIInstances

        self._config = config
        self._client = client or VastAIClient(config.creds.api_key, now, endpoint=endpoint)
        self._catalog = VastAICatalog(self._client, now, config.regions, community=config.community_cloud)
        self._machines = VastAIInstances(self._client, now, self._catalog.forget)

    def check(self) -> None:
        """Its key, and the form of its regions: Vast.ai has no list of them."""
        if wrong := [
            each for each in self._config.regions or () if not re.fullmatch(r"[a-z]{2}(-[a-z0-9-]+)?", each.lower())
        ]:
            raise Unfit(
                f"Vast.ai has no region {', '.join(wrong)}.",
                hint="Write a country, such as `us`, or a country and a place, such as `us-california`.",
            )
        self._client.check()

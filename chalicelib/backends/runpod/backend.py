"""Runpod as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfMachines, OfMarket, OfVolumes
from chalicelib.backends.runpod.facts import FACTS
from chalicelib.backends.spi import CreateRequest, CreateResult
from chalicelib.errors import BackendError, InvalidCredentials, MissingPermission, Unfit

if TYPE_CHECKING:
    from chalicelib.backends.price_file import OfflinePrices
    from chalicelib.backends.runpod.catalog import RunpodCatalog
    from chalicelib.backends.runpod.client import Client
    from chalicelib.backends.runpod.config import RunpodBackendConfig
    from chalicelib.backends.runpod.machines import RunpodPods

log = logging.getLogger(__name__)


class RunpodBackend(OfMarket, OfMachines, OfVolumes):
    facts = FACTS
    _client: Client
    _catalog: RunpodCatalog
    _machines: RunpodPods

    def __init__(
        self,
        config: RunpodBackendConfig,
        client: Client | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider. `prices` is ignored: Runpod's catalogue has prices."""
        from chalicelib.backends.runpod.catalog import RunpodCatalog
        from chalicelib.backends.runpod.client import Client
        from chalicelib.backends.runpod.machines import RunpodPods
        from chalicelib.backends.runpod.volumes import NetworkVolumes

        self._config = config
        self._client = client or Client(config.creds.api_key, now, endpoint=endpoint)
        self._catalog = RunpodCatalog(self._client, now, config.regions, community=config.community_cloud)
        self._machines = RunpodPods(self._client, now, self._catalog.forget)
        self._volumes = NetworkVolumes(self._client, now)

    def check(self) -> None:
        """Its key, for all that is listed later, and the names of its regions."""
        from chalicelib.backends.runpod.catalog import COMMUNITY

        for listed in ("pods", "registries", "templates", "clusters", "network-volumes"):
            self._client.call("GET", listed)
        try:
            self._client.graphql("query { myself { id } }")
        except (InvalidCredentials, MissingPermission) as error:
            raise MissingPermission(
                f"Runpod's GraphQL API, with spot pods and the prices of clusters, refuses the key: {error.message}",
                hint="give the key the access to GraphQL, to read and to write",
            ) from None
        except BackendError as error:  # one day it will have been retired, and pods on demand don't need it
            log.warning("Runpod's GraphQL API can't be checked: %s", error)
        if self._config.regions:
            known = [*self._catalog.data_centers(), *([COMMUNITY] if self._config.community_cloud else [])]
            if wrong := [each for each in self._config.regions if each not in known]:
                raise Unfit(
                    f"Runpod has no data center {', '.join(wrong)}.",
                    hint=f"`regions` can have {', '.join(sorted(known))}; and, with `community_cloud`, {COMMUNITY}: "
                    "nobody can choose a country there.",
                )

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        return self._machines.create_several(requests)

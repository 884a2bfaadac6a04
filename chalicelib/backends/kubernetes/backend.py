"""Kubernetes clusters as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import OfMachines, OfMarket, OfVolumes
from chalicelib.backends.kubernetes.facts import FACTS
from chalicelib.backends.spi import CreateRequest, MachineChange
from chalicelib.domain.instances import Handle

if TYPE_CHECKING:
    from chalicelib.backends.kubernetes.client import Clusters
    from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
    from chalicelib.backends.kubernetes.machines import Pods
    from chalicelib.backends.kubernetes.watches import ContextWatches
    from chalicelib.backends.price_file import OfflinePrices


class KubernetesBackend(OfMarket, OfMachines, OfVolumes):
    facts = FACTS
    _client: Clusters
    _machines: Pods

    def __init__(
        self,
        config: KubernetesBackendConfig,
        clusters: Clusters | None = None,
        now: Now = system_time,
        prices: OfflinePrices | None = None,
        watches: ContextWatches | None = None,
    ) -> None:
        """`prices` doesn't matter: nothing is bought."""
        from chalicelib.backends.kubernetes import kubeconfig
        from chalicelib.backends.kubernetes.catalog import Catalog
        from chalicelib.backends.kubernetes.client import Clusters
        from chalicelib.backends.kubernetes.identities import Identities
        from chalicelib.backends.kubernetes.machines import Pods
        from chalicelib.backends.kubernetes.volumes import Claims
        from chalicelib.backends.kubernetes.watches import ContextWatches

        self._client = clusters or Clusters(kubeconfig.clusters(config), now)
        identities = Identities(self._client, now)
        self._watches = watches or ContextWatches(self._client)
        self._machines = Pods(self._client, now, self._watches, identities)
        self._catalog = Catalog(self._client, self._machines.level, now)
        self._volumes = Claims(self._client, identities)

    def check(self) -> None:
        from chalicelib.backends.kubernetes.checking import check

        check(self._client)

    def create_gateway(self, request: CreateRequest) -> Iterator[Handle]:
        return self._machines.create_gateway(request)

    def watch(self, changed: Callable[[Sequence[MachineChange]], None], install: str) -> Callable[[], None]:
        return self._watches.begin(changed, install)

    def close(self) -> None:
        self._watches.end()
        self._client.close()

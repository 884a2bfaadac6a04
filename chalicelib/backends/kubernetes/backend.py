"""Kubernetes clusters as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kubernetes.facts import FACTS
from chalicelib.backends.spi import CreateRequest, Machine, MachineChange, Owned, OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import BackendError, Bug

if TYPE_CHECKING:
    from chalicelib.backends.kubernetes.client import Clusters
    from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
    from chalicelib.backends.kubernetes.watches import ContextWatches
    from chalicelib.backends.price_file import OfflinePrices
    from chalicelib.domain.offer_requests import OfferRequest


class KubernetesBackend:
    facts = FACTS

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

        self._clusters = clusters or Clusters(kubeconfig.clusters(config), now)
        identities = Identities(self._clusters, now)
        self._watches = watches or ContextWatches(self._clusters)
        self._pods = Pods(self._clusters, now, self._watches, identities)
        self._catalog = Catalog(self._clusters, self._pods.level, now)
        self._claims = Claims(self._clusters, identities)

    def check(self) -> None:
        from chalicelib.backends.kubernetes.checking import check

        check(self._clusters)

    def offers(self) -> Sequence[Offer]:
        raise Bug("what a cluster has is asked for each request")

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        return self._catalog.offers_for(request)

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return self._pods.create(request)

    def create_gateway(self, request: CreateRequest) -> Iterator[Handle]:
        return self._pods.create_gateway(request)

    def describe(self, handles: Sequence[Handle]) -> Machine:
        return self._pods.describe(handles)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return self._pods.describe_several(machines)

    def watch(self, changed: Callable[[Sequence[MachineChange]], None], install: str) -> Callable[[], None]:
        return self._watches.begin(changed, install)

    def terminate(self, handle: Handle) -> None:
        self._pods.terminate(handle)

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self._pods.list_owned(instance_id, region)

    def create_volume(self, request: VolumeRequest) -> Handle:
        return self._claims.create(request)

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        return self._claims.register(volume_id, region, zone)

    def describe_volume(self, handle: Handle) -> ProviderDisk:
        return self._claims.describe(handle)

    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        self._claims.attach(handle, machine)

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        self._claims.detach(handle)

    def delete_volume(self, handle: Handle) -> None:
        self._claims.delete(handle)

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        return self._claims.list_owned(volume_id, region)

    def close(self) -> None:
        self._watches.end()
        self._clusters.close()

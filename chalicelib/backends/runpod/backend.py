"""Runpod as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.runpod.facts import FACTS
from chalicelib.backends.spi import CreateRequest, CreateResult, Machine, Owned, OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, Bug, InvalidCredentials, MissingPermission, Unfit

if TYPE_CHECKING:
    from chalicelib.backends.price_file import OfflinePrices
    from chalicelib.backends.runpod.client import Client
    from chalicelib.backends.runpod.config import RunpodBackendConfig
    from chalicelib.domain.offer_requests import OfferRequest
    from chalicelib.domain.volumes import ProviderDisk

log = logging.getLogger(__name__)


class RunpodBackend:
    facts = FACTS

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
        self._pods = RunpodPods(self._client, now, self._catalog.forget)
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

    def offers(self) -> Sequence[Offer]:
        raise Bug("what Runpod has is asked for each request")

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        return self._catalog.offers_for(request)

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return self._pods.create(request)

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        return self._pods.create_several(requests)

    def describe(self, handles: Sequence[Handle]) -> Machine:
        return self._pods.describe(handles)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return self._pods.describe_several(machines)

    def terminate(self, handle: Handle) -> None:
        self._pods.terminate(handle)

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self._pods.list_owned(instance_id, region)

    def create_volume(self, request: VolumeRequest) -> Handle:
        return self._volumes.create(request)

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        return self._volumes.register(volume_id, region, zone)

    def describe_volume(self, handle: Handle) -> ProviderDisk:
        return self._volumes.describe(handle)

    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        self._volumes.attach(handle, machine)

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        self._volumes.detach(handle)

    def delete_volume(self, handle: Handle) -> None:
        self._volumes.delete(handle)

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        return self._volumes.list_owned(volume_id, region)

    def close(self) -> None:
        self._client.close()

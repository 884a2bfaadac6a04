"""Nebius as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created, and the SDK with
the first call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.nebius.facts import FACTS
from chalicelib.backends.spi import (
    CreateRequest,
    GroupRequest,
    Machine,
    Owned,
    OwnedGroup,
    OwnedVolume,
    VolumeRequest,
)
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Offer
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import BackendError

if TYPE_CHECKING:
    from chalicelib.backends.nebius.client import NebiusClient
    from chalicelib.backends.nebius.config import NebiusBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class NebiusBackend:
    facts = FACTS

    def __init__(
        self,
        config: NebiusBackendConfig,
        client: NebiusClient | None = None,
        now: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`prices` aren't needed: Nebius has a calculator."""
        from chalicelib.backends.nebius.catalog import NebiusCatalog
        from chalicelib.backends.nebius.client import NebiusClient
        from chalicelib.backends.nebius.groups import NebiusGroups
        from chalicelib.backends.nebius.machines import NebiusMachines
        from chalicelib.backends.nebius.network import NebiusNetworks
        from chalicelib.backends.nebius.places import Places
        from chalicelib.backends.nebius.volumes import NebiusVolumes
        from chalicelib.backends.nebius.wire import GrpcWire

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

    def offers(self) -> Sequence[Offer]:
        return self._catalog.offers()

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return self._machines.create(request)

    def describe(self, handles: Sequence[Handle]) -> Machine:
        return self._machines.describe(handles)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return self._machines.describe_several(machines)

    def terminate(self, handle: Handle) -> None:
        self._machines.terminate(handle)

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self._machines.list_owned(instance_id, region)

    def create_group(self, request: GroupRequest) -> Handle:
        return self._groups.create(request)

    def delete_group(self, handle: Handle) -> None:
        self._groups.delete(handle)

    def list_owned_groups(self) -> Iterator[OwnedGroup]:
        return self._groups.list_owned()

    def create_volume(self, request: VolumeRequest) -> Handle:
        return self._volumes.create(request)

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        return self._volumes.register(volume_id, region, zone)

    def describe_volume(self, handle: Handle) -> ProviderDisk:
        return self._volumes.describe(handle)

    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        self._volumes.attach(handle, machine, read_only=read_only)

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        self._volumes.detach(handle, machine)

    def delete_volume(self, handle: Handle) -> None:
        self._volumes.delete(handle)

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        return self._volumes.list_owned(volume_id, region)

    def close(self) -> None:
        self._client.close()

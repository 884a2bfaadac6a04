"""Crusoe Cloud as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.crusoe.facts import FACTS
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
from chalicelib.errors import BackendError, MissingPermission, Unfit

if TYPE_CHECKING:
    from chalicelib.backends.crusoe.client import CrusoeClient
    from chalicelib.backends.crusoe.config import CrusoeBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class CrusoeBackend:
    facts = FACTS

    def __init__(
        self,
        config: CrusoeBackendConfig,
        client: CrusoeClient | None = None,
        now: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of what stands in for the provider."""
        from chalicelib.backends.crusoe.catalog import CrusoeCatalog
        from chalicelib.backends.crusoe.client import CrusoeClient
        from chalicelib.backends.crusoe.disks import CrusoeDisks
        from chalicelib.backends.crusoe.machines import CrusoeMachines
        from chalicelib.backends.crusoe.partitions import Partitions
        from chalicelib.backends.crusoe.prices import CrusoePrices
        from chalicelib.backends.crusoe.volumes import CrusoeVolumes

        self._config, self._prices = config, CrusoePrices(prices)
        self._client = client or CrusoeClient(config.creds, config.project_id, now, endpoint=endpoint)
        disks = CrusoeDisks(self._client, now)
        self._partitions = Partitions(self._client, now)
        self._catalog = CrusoeCatalog(self._client, self._prices, config.regions)
        self._machines = CrusoeMachines(self._client, disks, self._partitions, now)
        self._volumes = CrusoeVolumes(self._client, disks, self._prices, now)

    def check(self) -> None:
        """The keys, all that is listed later, the regions, and whether there are prices."""
        from chalicelib.backends.crusoe.client import DISKS, NETWORKS, PARTITIONS, VMS

        denied = []
        for path in (("quotas",), VMS, DISKS, PARTITIONS, NETWORKS):
            try:
                self._client.call("GET", *path)
            except MissingPermission as error:
                denied.append(error.message)
        if denied:
            raise MissingPermission(
                " ".join(denied),
                hint=f"Is {self._config.project_id} the project, and what may the key's user do in it?",
            )
        known = self._client.everybodys("locations")["items"]
        if wrong := [each for each in self._config.regions or () if each not in known]:
            raise Unfit(
                f"Crusoe has no location {', '.join(wrong)}.", hint=f"`regions` can have {', '.join(sorted(known))}."
            )
        self._prices.known()

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
        return self._partitions.create_group(request)

    def delete_group(self, handle: Handle) -> None:
        self._partitions.delete(handle)

    def list_owned_groups(self) -> Iterator[OwnedGroup]:
        return self._partitions.list_owned_groups()

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

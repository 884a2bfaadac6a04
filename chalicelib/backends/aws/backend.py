"""Amazon Web Services as a backend. Each call of the protocol is delegated to a part.

The class is imported wherever its facts are needed; its parts are imported when an object is created.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from chalicelib.backends.aws.facts import FACTS
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
    from chalicelib.backends.aws.client import Clients
    from chalicelib.backends.aws.config import AWSBackendConfig
    from chalicelib.backends.price_file import OfflinePrices


class AwsBackend:
    facts = FACTS

    def __init__(
        self,
        config: AWSBackendConfig,
        clients: Clients | None = None,
        now: Callable[[], Micros] = lambda: time.time_ns() // 1000,
        prices: OfflinePrices | None = None,
        endpoint: str = "",
    ) -> None:
        """`endpoint`: of an emulator."""
        from chalicelib.backends.aws.catalog import AwsCatalog
        from chalicelib.backends.aws.client import Clients
        from chalicelib.backends.aws.groups import AwsGroups
        from chalicelib.backends.aws.images import AwsImages
        from chalicelib.backends.aws.machines import Machines
        from chalicelib.backends.aws.network import Networks
        from chalicelib.backends.aws.prices import Prices
        from chalicelib.backends.aws.volumes import AwsVolumes

        self._config, self._clients = config, clients or Clients(config.creds, endpoint=endpoint or None)
        self._networks = Networks(self._clients, config, now)
        self._images = AwsImages(self._clients, config, now)
        self._machines = Machines(self._clients, config, self._networks, self._images, now)
        self._groups = AwsGroups(self._clients, config)
        priced = Prices(self._clients, now, prices)
        self._catalog = AwsCatalog(self._clients, config, priced, now)
        self._volumes = AwsVolumes(self._clients, config, self._networks, priced, now)

    def check(self) -> None:
        from chalicelib.backends.aws.checking import check

        check(self._clients, self._config, self._networks, self._images)

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
        self._volumes.attach(handle, machine)

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        self._volumes.detach(handle, machine)

    def delete_volume(self, handle: Handle) -> None:
        self._volumes.delete(handle)

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        return self._volumes.list_owned(volume_id, region)

    def close(self) -> None:
        self._clients.close()

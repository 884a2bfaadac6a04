"""The calls of the protocol that a backend's class passes on to its parts as they are.

A class inherits those for which it has the part, so what it can do still shows in what it inherits and has. A call that
needs more than passing on is written out in the class itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from chalicelib.backends.spi import CreateRequest, GroupRequest, Machine, Owned, OwnedGroup, OwnedVolume, VolumeRequest
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import BackendError, Bug


class ClientPart(Protocol):
    def close(self) -> None: ...


class CatalogPart(Protocol):
    def offers(self) -> Sequence[Offer]: ...


class LiveCatalogPart(Protocol):
    def offers_for(self, request: OfferRequest) -> Sequence[Offer]: ...


class MachinePart(Protocol):
    def create(self, request: CreateRequest) -> Iterator[Handle]: ...

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]: ...

    def terminate(self, handle: Handle) -> None: ...

    def list_owned(self, instance_id: str | None, region: str) -> Iterator[Owned]: ...


class GroupPart(Protocol):
    def create(self, request: GroupRequest) -> Handle: ...

    def delete(self, handle: Handle) -> None: ...

    def list_owned(self) -> Iterator[OwnedGroup]: ...


class VolumePart(Protocol):
    def create(self, request: VolumeRequest) -> Handle: ...

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk: ...

    def describe(self, handle: Handle) -> ProviderDisk: ...

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        """Without `facts.read_only_attach`, nothing follows from `read_only` here: the agent enforces it."""

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None: ...

    def delete(self, handle: Handle) -> None: ...

    def list_owned(self, volume_id: str | None, region: str) -> Iterator[OwnedVolume]: ...


class DescribesOne:
    """For a class that describes several machines at once."""

    def describe(self, handles: Sequence[Handle]) -> Machine:
        (found,) = self.describe_several([handles])
        if isinstance(found, BackendError):
            raise found
        return found

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        raise NotImplementedError


class OfAccount:
    _client: ClientPart
    _catalog: CatalogPart

    def offers(self) -> Sequence[Offer]:
        return self._catalog.offers()

    def close(self) -> None:
        self._client.close()


class OfMarket:
    """For a provider whose offers can't be listed."""

    facts: BackendFacts
    _client: ClientPart
    _catalog: LiveCatalogPart

    def offers(self) -> Sequence[Offer]:
        raise Bug(f"what {self.facts.title} has is asked for each request")

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        return self._catalog.offers_for(request)

    def close(self) -> None:
        self._client.close()


class OfMachines(DescribesOne):
    _machines: MachinePart

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        return self._machines.create(request)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return self._machines.describe_several(machines)

    def terminate(self, handle: Handle) -> None:
        self._machines.terminate(handle)

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        return self._machines.list_owned(instance_id, region)


class OfGroups:
    _groups: GroupPart

    def create_group(self, request: GroupRequest) -> Handle:
        return self._groups.create(request)

    def delete_group(self, handle: Handle) -> None:
        self._groups.delete(handle)

    def list_owned_groups(self) -> Iterator[OwnedGroup]:
        return self._groups.list_owned()


class OfVolumes:
    _volumes: VolumePart

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

"""Faults of volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import BackendError, Gone, InUse, Unfit
from tests.backends.planted.port import PortFault, forgotten, noticed_by
from tests.backends.planted.raising import OtherErrors

# --- create and find -------------------------------------------------------------------------------------------------


@noticed_by("one_token_makes_one_volume", "the_token_finds_at_once_the_volume_of_the_first_call")
class MakesAVolumeEachTime(PortFault):
    def create_volume(self, request: VolumeRequest) -> Handle:
        return self.inner.create_volume(forgotten(request))  # type: ignore[no-any-return]


@noticed_by("another_epoch_is_another_volume")
class TakesEveryEpochOfAVolumeForOne(PortFault):
    def create_volume(self, request: VolumeRequest) -> Handle:
        return self.inner.create_volume(replace(request, token="volume", name="volume"))  # type: ignore[no-any-return]


class OtherDisk(PortFault):
    def changed(self, disk: ProviderDisk) -> ProviderDisk:
        raise NotImplementedError

    def describe_volume(self, handle: Handle) -> ProviderDisk:
        return self.changed(self.inner.describe_volume(handle))


@noticed_by("a_created_volume_is_as_requested")
class CallsEveryVolumeEmpty(OtherDisk):
    def changed(self, disk: ProviderDisk) -> ProviderDisk:
        return disk.with_(size_gib=0)


@noticed_by("a_created_volume_is_as_requested")
class NamesNoZone(OtherDisk):
    def changed(self, disk: ProviderDisk) -> ProviderDisk:
        return disk.with_(zone="" if disk.zone else "a")


@noticed_by("an_attached_volume_says_where_and_how_it_is_found")
class NamesNoDevice(OtherDisk):
    def changed(self, disk: ProviderDisk) -> ProviderDisk:
        return disk.with_(attached_to=tuple((where, device and Device()) for where, device in disk.attached_to))


@noticed_by("an_attached_volume_says_where_and_how_it_is_found", "a_container_has_the_volumes_that_it_was_created_with")
class CallsAVolumeInUseAvailable(OtherDisk):
    def changed(self, disk: ProviderDisk) -> ProviderDisk:
        return disk.with_(state="available") if disk.state == "in_use" else disk


@noticed_by("an_existing_volume_is_found_by_its_id")
class FindsAVolumeAnywhere(PortFault):
    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        try:
            return self.inner.register_volume(volume_id, region, zone)  # type: ignore[no-any-return]
        except Gone:
            owned = next(each for each in self.inner.list_owned_volumes() if each.handle.id == volume_id)
            return self.inner.describe_volume(owned.handle)  # type: ignore[no-any-return]


@noticed_by("an_unknown_volume_is_gone", "a_deletion_is_repeated_until_gone")
class DoubtsThatAVolumeIsGone(OtherErrors):
    def changed(self, error: BackendError) -> Exception:
        return Unfit(error.message) if isinstance(error, Gone) else error


class OtherVolumes(PortFault):
    def changed(self, owned: Iterator[OwnedVolume]) -> Iterator[OwnedVolume]:
        raise NotImplementedError

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        return self.changed(self.inner.list_owned_volumes(volume_id, region))


@noticed_by("the_listing_is_complete_and_names_the_owner")
class MistakesTheProjectForTheInstallOfAVolume(OtherVolumes):
    def changed(self, owned: Iterator[OwnedVolume]) -> Iterator[OwnedVolume]:
        return (replace(each, install=each.project_id, project_id=each.install) for each in owned)


@noticed_by("the_listing_is_complete_and_names_the_owner")
class LeavesAVolumeOut(OtherVolumes):
    def changed(self, owned: Iterator[OwnedVolume]) -> Iterator[OwnedVolume]:
        return iter(list(owned)[:1])


@noticed_by("the_listing_is_complete_and_names_the_owner")
class ListsTheVolumesOfEveryRegion(PortFault):
    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        return self.inner.list_owned_volumes(volume_id)  # type: ignore[no-any-return]


# --- attach and detach -----------------------------------------------------------------------------------------------


@noticed_by("it_outlives_its_machine", "an_attached_volume_is_not_deleted")
class AttachesNothing(PortFault):
    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        """As if it had been requested."""


@noticed_by("it_may_be_attached_twice_to_one_machine")
class RefusesWhatIsAttached(PortFault):
    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        if on(self.inner, handle, machine):
            raise InUse(handle.id)
        self.inner.attach_volume(handle, machine, read_only=read_only)


@noticed_by("one_is_attached_so_that_nothing_can_write_it")
class AttachesForWriting(PortFault):
    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        self.inner.attach_volume(handle, machine)


@noticed_by("one_that_is_attached_elsewhere_is_in_use", "a_machine_in_another_zone_gets_none")
class HidesThatAnAttachmentFailed(PortFault):
    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        try:
            self.inner.attach_volume(handle, machine, read_only=read_only)
        except BackendError:
            return


@noticed_by("a_machine_that_is_gone_gets_none", "a_machine_in_another_zone_gets_none")
class CallsAVolumeGoneForItsMachine(PortFault):
    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        try:
            self.inner.attach_volume(handle, machine, read_only=read_only)
        except BackendError as error:
            raise Gone(error.message) from error


@noticed_by("it_may_be_detached_twice", "a_machine_that_is_gone_gets_none")
class DetachesOnlyWhatIsAttached(PortFault):
    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        if not on(self.inner, handle, machine):
            raise Unfit(f"{handle.id} isn't attached")
        self.inner.detach_volume(handle, machine)


@noticed_by("what_was_detached_can_be_attached_elsewhere", "it_may_be_detached_twice")
class DetachesNothing(PortFault):
    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        """As if it had been requested."""


# --- delete ----------------------------------------------------------------------------------------------------------


@noticed_by("a_deletion_is_repeated_until_gone")
class DeletesNoVolume(PortFault):
    def delete_volume(self, handle: Handle) -> None:
        """As if it had been requested."""


@noticed_by("an_attached_volume_is_not_deleted", "a_volume_of_a_container_is_not_deleted")
class HidesThatAVolumeIsAttached(PortFault):
    def delete_volume(self, handle: Handle) -> None:
        try:
            self.inner.delete_volume(handle)
        except InUse:
            return


@noticed_by("it_outlives_its_machine", "a_volume_outlives_its_container")
class DeletesTheVolumeWithItsMachine(PortFault):
    def terminate(self, handle: Handle) -> None:
        try:
            self.inner.terminate(handle)
        except Gone:
            for owned in self.inner.list_owned_volumes():
                with suppress(InUse):  # while it is still being detached
                    self.inner.delete_volume(owned.handle)
            raise


def on(backend: Any, handle: Handle, machine: Sequence[Handle]) -> bool:
    attached = {where for where, _ in backend.describe_volume(handle).attached_to}
    return not attached.isdisjoint(each.id for each in machine)

"""Volumes: create, register, describe, delete.

As with machines: only the committer of a creation executes it, and the report of what is left covers the handle, the
provider's list of volumes with this one's tag, and a creation that was open when the check began. A volume is a single
resource, so its handle is recorded with the outcome: whoever repeats a creation whose outcome was lost adopts the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import ClassVar

from chalicelib.backends.spi import VolumeRequest, Volumes
from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import CALLED, OFFERED, OwnedKind, Owner, is_ours
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import ProviderDisk, Volume, VolumeStatus
from chalicelib.engine.effects.acting import Acting, said, translated
from chalicelib.engine.read import Reader
from chalicelib.errors import BackendError, Conflict, Gone, Transient, Unfit
from chalicelib.planning.kernel.plan import Effect, Outcome
from chalicelib.planning.volumes.volumes import (
    CreateVolume,
    DeleteVolume,
    DescribeVolume,
    DiskLeft,
    DiskSeen,
    RegisterVolume,
    VolumeMade,
    VolumeNotDone,
    VolumeNotMade,
    has_disk,
    is_disk_of,
    may_begin,
)
from chalicelib.store import nouns
from chalicelib.store.listing import every

log = logging.getLogger(__name__)


class VolumeEffects:
    effects: ClassVar[Mapping[type[Effect], str]] = {
        CreateVolume: "create",
        RegisterVolume: "register",
        DescribeVolume: "describe",
        DeleteVolume: "delete",
    }

    def __init__(self, here: Acting) -> None:
        self.here = here

    def create(self, effect: CreateVolume) -> Outcome | None:
        volume = self._may_begin(effect)
        if volume is None:
            return None
        try:
            provider = self.volumes_of(volume, now=True)
            with translated(volume.name):
                handle = provider.create_volume(self.request(volume))
        except BackendError as error:
            return VolumeNotMade(effect.unit, *said(error), volume.epoch, effect.act_until)
        return VolumeMade(effect.unit, volume.epoch, effect.act_until, handle)

    def register(self, effect: RegisterVolume) -> Outcome | None:
        volume = self._may_begin(effect)
        if volume is None:
            return None
        try:
            provider = self.volumes_of(volume)
            with translated(volume.name):
                disk = provider.register_volume(volume.external_id, volume.region, volume.zone)
                self._claim(volume, disk.handle, provider)
                self._refuse_taken(volume, disk.handle, provider)
                self._refuse_unoffered(volume, disk)
        except BackendError as error:
            return VolumeNotMade(effect.unit, *said(error), volume.epoch, effect.act_until)
        return DiskSeen(effect.unit, volume.epoch, disk)

    def _claim(self, volume: Volume, handle: Handle, provider: Volumes) -> None:
        """Of two that are registered at once, neither of which sees the other yet, only one passes here."""
        key = keys.disk(volume.backend, volume.region, handle.id)
        found = nouns.find_target(self.here.store, key)
        if found is not None and found[0] == volume.id:
            return
        other = None if found is None else nouns.find(self.here.store, Volume, keys.volume(found[0]))
        if other is not None and not other.deleted and has_disk(other) and self._near(volume, other, provider):
            raise _taken(volume, other.project_id, f"is the volume {other.name} already")
        try:
            self.here.store.commit([nouns.pointer(key, volume.id, version=0 if found is None else found[1])])
        except Conflict:
            raise Transient(f"Volume {volume.external_id} is being registered by somebody else, too.") from None

    def _near(self, volume: Volume, other: Volume, provider: object) -> bool:
        """May the two be one disk? Two projects may have credentials of one account, each its own."""
        facts = self.here.backends.facts(volume.project_id).get(volume.backend)
        if facts is not None and facts.unique_volumes:
            return other.backend == volume.backend
        return self.here.backends.of(other.project_id, other.backend) is provider

    def _refuse_unoffered(self, volume: Volume, disk: ProviderDisk) -> None:
        """That somebody's credentials can attach a disk doesn't mean that its owner lets them."""
        project = nouns.find(self.here.store, Project, keys.project(volume.project_id))
        name = "" if project is None else project.name
        if name not in disk.offered_to:
            raise Unfit(
                f"Volume {volume.external_id} isn't offered to the project {name}: its owner has to set the tag "
                f"{OFFERED}={name} on it, in the cloud (several names are separated by spaces)."
            )

    def _refuse_taken(self, volume: Volume, handle: Handle, provider: Volumes) -> None:
        """A disk is one volume: two would be attached, and deleted, without regard to each other. Projects share
        accounts, and nobody gets another's disk by knowing its id."""
        for other in self._volumes_near(volume, provider):
            if is_disk_of(other, handle, volume.region):
                raise _taken(volume, other.project_id, f"is the volume {other.name} already")
        for one in provider.list_owned_volumes():
            if is_ours(one.install, self.here.install_id) and one.handle.id == handle.id:
                raise _taken(volume, one.project_id, "was created by this server for a volume that is gone")

    def _volumes_near(self, volume: Volume, provider: object) -> Iterator[Volume]:
        """Those of every project that may be in the same account."""
        reader = Reader(self.here.store)
        for record in every(self.here.store, "projects", "name/"):
            for other in reader.volumes(nouns.pointed(record)):
                if self._near(volume, other, provider):
                    yield other

    def describe(self, effect: DescribeVolume) -> Outcome | None:
        volume = self._find(effect)
        if volume is None or volume.handle is None:
            return None
        try:
            with translated(volume.name):
                disk = self.volumes_of(volume).describe_volume(volume.handle)
        except Gone:
            return DiskSeen(effect.unit, volume.epoch, None)
        except BackendError as error:
            return VolumeNotDone(effect.unit, *said(error), volume.epoch)
        return DiskSeen(effect.unit, volume.epoch, disk)

    def delete(self, effect: DeleteVolume) -> Outcome | None:
        volume = self._find(effect)
        if volume is None or volume.external or volume.attachments:
            return None
        if volume.status is not VolumeStatus.deleting and not volume.remains:
            return None
        began, going = self.here.clock.now(), ""
        try:
            provider = self.volumes_of(volume)
            for handle in self._all_of(volume, provider):
                try:
                    with translated(volume.name):
                        provider.delete_volume(handle)
                except Gone:
                    continue
                going = going or f"{handle.kind} {handle.id} is being removed"
        except BackendError as error:
            return VolumeNotDone(effect.unit, *said(error), volume.epoch)
        return DiskLeft(effect.unit, volume.epoch, began, volume.act_until, going)

    def volumes_of(self, volume: Volume, *, now: bool = False) -> Volumes:
        backend = self.here.backends.of(volume.project_id, volume.backend, now=now)
        if not isinstance(backend, Volumes):
            backend.check()  # one that isn't configured any more says so
            raise Unfit(f"the backend {volume.backend} has no volumes")
        return backend

    def request(self, volume: Volume) -> VolumeRequest:
        """The same volume and epoch give the same request."""
        install = self.here.install_id
        owner = Owner(OwnedKind.volume, install, volume.project_id, volume.id, volume.epoch)
        return VolumeRequest(
            token=derive(f"{install}/{volume.project_id}/{volume.id}/{volume.epoch}", "create-volume"),
            name=owner.name,
            tags=(
                *sorted(volume.tags.items()),
                *owner.tags,
                (CALLED, volume.name),
            ),
            region=volume.region,
            zone=volume.zone,
            size_gib=volume.size_gib or 0,
        )

    def _all_of(self, volume: Volume, provider: Volumes) -> list[Handle]:
        """What there may be of it: what was recorded, and what the provider lists under its tag."""
        with translated(volume.name):
            listed = list(provider.list_owned_volumes(volume.id, volume.region))
        found = {} if volume.handle is None else {volume.handle.id: volume.handle}
        for one in listed:
            if is_ours(one.install, self.here.install_id) and one.volume_id == volume.id:
                found.setdefault(one.handle.id, one.handle)
        return list(found.values())

    def _may_begin(self, effect: Effect) -> Volume | None:
        volume = self._find(effect)
        if volume is None:
            return None
        facts = self.here.backends.of(volume.project_id, effect.backend).facts
        return volume if may_begin(volume, effect, facts, self.here.clock.now()) else None

    def _find(self, effect: Effect) -> Volume | None:
        volume = nouns.find(self.here.store, Volume, keys.volume(effect.unit.partition("/")[2]))
        if volume is None or volume.deleted:
            log.info("%s is too late: its volume is deleted", effect)
            return None
        return volume


def _taken(volume: Volume, project_id: str, how: str) -> Unfit:
    if project_id != volume.project_id:
        how = "belongs to another project of this server"
    return Unfit(f"Volume {volume.external_id} {how}.")

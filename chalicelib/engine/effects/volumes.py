"""Volumes: creation, registration, description and deletion.

As with machines, only the process that commits a creation executes it. The check for leftovers covers the recorded
handle, the provider's volumes with this one's tag, and a creation that was in progress when the check began. A volume
is a single resource, so its handle is recorded with the outcome: repeating a creation whose outcome was lost adopts the
same volume.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import ClassVar

import orjson

from chalicelib.backends.spi import VolumeRequest, Volumes
from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import CALLED, OFFERED, OwnedKind, Owner, same_install
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import ProviderDisk, Volume, VolumeStatus
from chalicelib.engine.effects.context import EffectContext, failure_fields, translated
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
    VolumeCreated,
    VolumeNotCreated,
    VolumeNotDone,
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

    def __init__(self, here: EffectContext) -> None:
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
            return VolumeNotCreated(effect.unit, *failure_fields(error), volume.epoch, effect.act_until)
        return VolumeCreated(effect.unit, volume.epoch, effect.act_until, handle)

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
                _refuse_unwritable(volume, disk)
        except BackendError as error:
            return VolumeNotCreated(effect.unit, *failure_fields(error), volume.epoch, effect.act_until)
        return DiskSeen(effect.unit, volume.epoch, disk)

    def _claim(self, volume: Volume, handle: Handle, provider: Volumes) -> None:
        """Claim the disk, so that only one of two simultaneous registrations succeeds."""
        key = keys.disk(volume.backend, volume.region, handle.id)
        found = nouns.find_target(self.here.store, key)
        if found is not None and found[0] == volume.id:
            return
        other = None if found is None else nouns.find(self.here.store, Volume, keys.volume(found[0]))
        if other is not None and not other.deleted and has_disk(other) and self._near(volume, other, provider):
            raise _taken_error(volume, other.project_id, f"is the volume {other.name} already")
        try:
            self.here.store.commit([nouns.pointer(key, volume.id, version=0 if found is None else found[1])])
        except Conflict:
            raise Transient(f"Volume {volume.external_id} is being registered by somebody else, too.") from None

    def _near(self, volume: Volume, other: Volume, provider: object) -> bool:
        """Whether the two could be the same disk: two projects may have separate credentials for one account."""
        facts = self.here.backends.facts(volume.project_id).get(volume.backend)
        if facts is not None and facts.unique_volumes:
            return other.backend == volume.backend
        return self.here.backends.of(other.project_id, other.backend) is provider

    def _refuse_unoffered(self, volume: Volume, disk: ProviderDisk) -> None:
        """Refuse a disk that isn't tagged for the project or, where there are no tags, named for it: credentials that
        can attach it aren't its owner's consent."""
        project = nouns.find(self.here.store, Project, keys.project(volume.project_id))
        name = "" if project is None else project.name
        if name not in disk.offered_to:
            facts = self.here.backends.facts(volume.project_id).get(volume.backend)
            if facts is None or facts.tags:
                how = f"set the tag {OFFERED}={name} on it, in the cloud (several names are separated by spaces)"
            else:
                first, between = facts.offers_disks
                how = f"add {OFFERED}{first}{name} to its name, in the cloud (`{between}` separates several projects)"
            raise Unfit(f"Volume {volume.external_id} isn't offered to the project {name}: its owner has to {how}.")

    def _refuse_taken(self, volume: Volume, handle: Handle, provider: Volumes) -> None:
        """Refuse a disk that is a volume already: two volumes would be attached and deleted without regard to each
        other. Projects may share accounts, and knowing the id of another's disk must not be enough to get it."""
        for other in self._volumes_near(volume, provider):
            if is_disk_of(other, handle, volume.region):
                raise _taken_error(volume, other.project_id, f"is the volume {other.name} already")
        for one in provider.list_owned_volumes():
            if same_install(one.install, self.here.install_id) and one.handle.id == handle.id:
                raise _taken_error(volume, one.project_id, "was created by this server for a volume that is gone")

    def _volumes_near(self, volume: Volume, provider: object) -> Iterator[Volume]:
        """The volumes of all projects that may be in the same account."""
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
            return VolumeNotDone(effect.unit, *failure_fields(error), volume.epoch)
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
            return VolumeNotDone(effect.unit, *failure_fields(error), volume.epoch)
        return DiskLeft(effect.unit, volume.epoch, began, volume.act_until, going)

    def volumes_of(self, volume: Volume, *, now: bool = False) -> Volumes:
        backend = self.here.backends.of(volume.project_id, volume.backend, now=now)
        if not isinstance(backend, Volumes):
            backend.check()  # raises the reason if it isn't configured any more
            raise Unfit(f"the backend {volume.backend} has no volumes")
        return backend

    def request(self, volume: Volume) -> VolumeRequest:
        """The request to create it; equal for equal volumes and epochs."""
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
            configuration=orjson.loads(volume.configuration),
        )

    def _all_of(self, volume: Volume, provider: Volumes) -> list[Handle]:
        """All handles that may belong to it: the recorded one, and those that the provider lists under its tag."""
        with translated(volume.name):
            listed = list(provider.list_owned_volumes(volume.id, volume.region))
        found = {} if volume.handle is None else {volume.handle.id: volume.handle}
        for one in listed:
            if same_install(one.install, self.here.install_id) and one.volume_id == volume.id:
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


def _refuse_unwritable(volume: Volume, disk: ProviderDisk) -> None:
    if not (disk.writable or volume.read_only):
        raise Unfit(f"Volume {volume.external_id} can only be read: add `read_only: true` to the configuration.")


def _taken_error(volume: Volume, project_id: str, how: str) -> Unfit:
    if project_id != volume.project_id:
        how = "belongs to another project of this server"
    return Unfit(f"Volume {volume.external_id} {how}.")

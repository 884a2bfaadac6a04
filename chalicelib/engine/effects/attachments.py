"""Attaching and detaching disks. Each attempt makes one request, and reports what the provider shows afterwards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

from chalicelib.backends.spi import Backend, Volumes
from chalicelib.domain import keys
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.volumes import Volume
from chalicelib.engine.effects.context import EffectContext, failure_fields, translated
from chalicelib.errors import BackendError, Transient
from chalicelib.planning.kernel.plan import Effect, Outcome
from chalicelib.planning.volumes.attachments import AttachVolume, DetachVolume, DiskAt, DiskNotMoved, may_move
from chalicelib.store import nouns

log = logging.getLogger(__name__)


def _machine(backend: Backend, instance: Instance | None) -> tuple[Handle, ...]:
    """The machine's handles. If its creation was interrupted, not all of them were recorded, so listed resources are
    included."""
    if instance is None or instance.status is InstanceStatus.terminated:
        return () if instance is None else instance.handles
    known = {handle.id: handle for handle in instance.handles}
    listed = backend.list_owned(instance.id, instance.offer.region)
    known |= {each.handle.id: each.handle for each in listed if each.epoch == instance.epoch}
    if not known:
        raise Transient(f"The provider doesn't list {instance.name} yet.")
    return tuple(known.values())


class Attachments:
    effects: ClassVar[Mapping[type[Effect], str]] = {AttachVolume: "move", DetachVolume: "move"}

    def __init__(self, here: EffectContext) -> None:
        self.here = here

    def move(self, effect: AttachVolume | DetachVolume) -> Outcome | None:
        volume = nouns.find(self.here.store, Volume, keys.volume(effect.unit.partition("/")[2]))
        instance = nouns.find(self.here.store, Instance, keys.instance(effect.instance_id))
        if volume is None or volume.handle is None:
            return None
        backend = self.here.backends.of(volume.project_id, effect.backend)
        if not may_move(volume, effect, backend.facts, self.here.clock.now()):
            log.info("%s is too late: the next pass repeats it if it is still needed", effect)
            return None
        attaching = isinstance(effect, AttachVolume)
        try:
            with translated(volume.name):
                machine = _machine(backend, instance)
                return self._moved(backend, volume, volume.handle, machine, effect)
        except BackendError as error:
            return DiskNotMoved(effect.unit, *failure_fields(error), effect.instance_id, effect.act_until, attaching)

    def _moved(
        self,
        backend: object,
        volume: Volume,
        handle: Handle,
        machine: tuple[Handle, ...],
        effect: AttachVolume | DetachVolume,
    ) -> Outcome:
        attaching = isinstance(effect, AttachVolume)
        if not isinstance(backend, Volumes):
            raise BackendError(f"{effect.backend} has no volumes any more")
        if attaching:
            backend.attach_volume(handle, machine, read_only=volume.read_only)
        else:
            backend.detach_volume(handle, machine)
        ids = {each.id for each in machine}
        disk = backend.describe_volume(handle)
        at = [device for machine_id, device in disk.attached_to if machine_id in ids]
        there = bool(at) or (not attaching and not ids.isdisjoint(disk.attaching_to))
        return DiskAt(effect.unit, effect.instance_id, effect.act_until, attaching, there, at[0] if at else None)

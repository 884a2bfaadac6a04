"""Attaching and detaching disks. Each attempt asks the provider once, and reports what it shows then."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

from chalicelib.backends.spi import Volumes
from chalicelib.domain import keys
from chalicelib.domain.instances import Handle, Instance
from chalicelib.domain.volumes import Volume
from chalicelib.engine.effects.acting import Acting, said, translated
from chalicelib.errors import BackendError, Gone
from chalicelib.planning.attachments import AttachVolume, DetachVolume, DiskAt, DiskNotMoved, may_move
from chalicelib.planning.plan import Effect, Outcome
from chalicelib.store import nouns

log = logging.getLogger(__name__)


class Attachments:
    effects: ClassVar[Mapping[type[Effect], str]] = {AttachVolume: "move", DetachVolume: "move"}

    def __init__(self, here: Acting) -> None:
        self.here = here

    def move(self, effect: AttachVolume | DetachVolume) -> Outcome | None:
        volume = nouns.find(self.here.store, Volume, keys.volume(effect.unit.partition("/")[2]))
        instance = nouns.find(self.here.store, Instance, keys.instance(effect.instance_id))
        if volume is None or volume.handle is None:
            return None
        backend = self.here.backends.of(volume.project_id, effect.backend)
        if not may_move(volume, effect, backend.facts, self.here.clock.now()):
            log.info("%s is too late: the next pass repeats what is still wanted", effect)
            return None
        attaching, machine = isinstance(effect, AttachVolume), () if instance is None else instance.handles
        try:
            with translated(volume.name):
                return self._moved(backend, volume.handle, machine, effect, attaching=attaching)
        except BackendError as error:
            if isinstance(error, Gone) and not attaching:
                return DiskAt(effect.unit, effect.instance_id, effect.act_until, attaching, there=False)
            return DiskNotMoved(effect.unit, *said(error), effect.instance_id, effect.act_until)

    def _moved(
        self,
        backend: object,
        handle: Handle,
        machine: tuple[Handle, ...],
        effect: AttachVolume | DetachVolume,
        *,
        attaching: bool,
    ) -> Outcome:
        if not isinstance(backend, Volumes):
            raise BackendError(f"{effect.backend} has no volumes any more")
        if attaching:
            backend.attach_volume(handle, machine)
        else:
            backend.detach_volume(handle, machine)
        ids = {each.id for each in machine}
        at = [device for machine_id, device in backend.describe_volume(handle).attached_to if machine_id in ids]
        return DiskAt(effect.unit, effect.instance_id, effect.act_until, attaching, bool(at), at[0] if at else None)

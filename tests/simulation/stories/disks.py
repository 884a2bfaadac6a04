"""Disks that were there before their volumes, and volumes that end otherwise than by a user who waits for it: unused
for too long, lost at their cloud, deleted while they are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.usecases.machines import volumes
from tests.simulation.stories import Scene, Story
from tests.simulation.stories.volumes import create, new_volume
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

REGISTERED_STAY = Invariant("theirs stay", "a disk that was there before its volume is still there after it")
ONE_VOLUME = Invariant("one volume", "a disk is one volume's only, and only of a project to which its owner offers it")
THESE_END = Invariant(
    "these end", "a volume that is unused for too long or deleted goes, and so does a disk made for it"
)

OFFERED_DISK, HIDDEN_DISK, NO_DISK = "vol-offered", "vol-hidden", "vol-nowhere"
STAYS = 600  # seconds without use


class Disks(Story):
    likely = 0.25

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._names: set[str] = set()

    def prepare(self) -> None:
        disks, project = self.site.cloud.disks, self.scene.projects[0]
        disks.add(OFFERED_DISK, "sim-east", projects=f"other {project.name}")
        disks.add(HIDDEN_DISK, "sim-east", projects="other")

    def plan(self) -> None:
        for name, disk in (("first", OFFERED_DISK), ("again", OFFERED_DISK), ("hidden", HIDDEN_DISK), ("no", NO_DISK)):
            self._sometime(name, external_id=disk, size_gib=None, blank=False)
        self._sometime("passing", auto_cleanup_seconds=STAYS)
        self._sometime("lost")
        self.sometime(self._lose, 30, FAULTY_FOR)
        self._sometime("unwanted")
        self.sometime(lambda: self._delete("unwanted"), 0, FAULTY_FOR)

    def _sometime(self, name: str, **fields: Any) -> None:
        if self.rng.random() < 0.8:
            self.sometime(lambda: self._create(name, fields), 0, FAULTY_FOR * 0.7)

    def _create(self, name: str, fields: dict[str, Any]) -> None:
        if self.scene.ask(lambda: create(self.scene, new_volume(self.scene, name, "sim-east", **fields))):
            self.world.note("disk registered" if "external_id" in fields else "disk wanted")
        self._names.add(name)  # whether or not the answer came

    def _delete(self, name: str) -> None:
        self.scene.ask(lambda: volumes.delete(self.site.plane, self.scene.user, self.scene.projects[0], [name]))

    def _lose(self) -> None:
        for volume in self._own_volumes():
            if volume.name == "lost" and volume.handle is not None:
                self.world.note("disk lost")
                self.site.cloud.disks.lose(volume.handle.id)

    def wind_up(self) -> None:
        for volume in self._own_volumes():
            if not volume.deleted and volume.status is not VolumeStatus.deleting:
                self._delete(volume.name)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _own_volumes(self) -> list[Volume]:
        return [each for each in self.watch.known.get(Volume, {}).values() if each.name in self._names]

    def committed(self, commit: Commit) -> None:
        for _, volume in commit.of(Volume):
            if not volume.external_id or volume.handle is None or volume.deleted:
                continue
            others = [each for each in self._own_volumes() if each.id != volume.id and each.handle == volume.handle]
            if volume.external_id != OFFERED_DISK or any(not each.deleted for each in others):
                raise ONE_VOLUME.broken(f"{volume.name} is {volume.external_id}, beside {[e.name for e in others]}")

    def unfinished(self) -> Iterator[Violation]:
        for volume in self._own_volumes():
            if volume.name == "passing" and not volume.deleted:
                yield THESE_END.broken(f"{volume.name} is {volume.status.value}, and nobody uses it")

    def left(self) -> Iterator[Violation]:
        for volume in self._own_volumes():
            if not volume.deleted:
                yield THESE_END.broken(f"{volume.name} is {volume.status.value}")

    def verify_at_end(self) -> None:
        there = {body["id"]: dict(body["tags"]) for body in self.site.cloud.disks.all()}
        for disk in (OFFERED_DISK, HIDDEN_DISK):
            if disk not in there:
                raise REGISTERED_STAY.broken(f"{disk} is gone")
        if made := [disk for disk, tags in there.items() if OFFERED not in tags]:
            raise THESE_END.broken(f"the disks {made} are still there")

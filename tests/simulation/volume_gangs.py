"""Tasks on several nodes that want the same volumes, one a node, beside single jobs that want one of them."""

from __future__ import annotations

from typing import Any, ClassVar

from chalicelib.domain.gangs import Gang, GangStatus
from tests.simulation.stories import STORIES
from tests.simulation.stories.volumes import FLEET, Volumes
from tests.simulation.watch import Commit
from tests.simulation.world import Invariant

CLAIMED_TOGETHER = Invariant("claimed together", "a gang is sealed with a volume for every node, or isn't sealed")


class VolumeGangs(Volumes):
    likely = 1.0
    fleet: ClassVar[dict[str, Any]] = {"name": FLEET, "nodes": "0..5", "placement": "cluster"}
    counts = (2, 3)
    regions = ("sim-east",)

    def _mounted(self) -> dict[str, Any]:
        nodes = self.rng.choice((1, 2, len(self._names)))
        if nodes == 1:
            return super()._mounted()
        return {"nodes": nodes, "volumes": [{"name": "disk-${{ dstack.node_rank }}", "path": "/data"}]}

    def committed(self, commit: Commit) -> None:
        super().committed(commit)
        for old, gang in commit.of(Gang):
            if gang.status is not GangStatus.sealed or (old is not None and old.status is GangStatus.sealed):
                continue
            if not gang.run_name.startswith("disk-user"):
                continue
            held = {each.job_num for volume in self._volumes() for each in volume.attachments if _of(gang, each)}
            if held != set(range(gang.nodes)):
                raise CLAIMED_TOGETHER.broken(f"gang {gang.name} is sealed, and its nodes {sorted(held)} have volumes")


def _of(gang: Gang, held: Any) -> bool:
    return (held.run_id, held.submission_num) == (gang.run_id, gang.submission_num)


STORIES_WITH_VOLUME_GANGS = (*(kind for kind in STORIES if kind is not Volumes), VolumeGangs)

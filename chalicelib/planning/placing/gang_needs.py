"""The needs of a task's nodes, grouped by equal requirements.

Only the first node, the lead, is in the queue; the others are read with it. An attempt isn't complete while some of its
jobs haven't been written yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chalicelib.domain.jobs import Job
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.matching.requirements import JobRequirements
from chalicelib.planning.placing.capacity import Capacity


def is_gang(unit: Sequence[QueuedJob]) -> bool:
    return unit[0].spec.jobs_per_replica > 1


@dataclass(frozen=True)
class Needs:
    """The needs of the nodes of a unit, from rank `first` on."""

    unit: Sequence[QueuedJob]
    first: int = 0

    @property
    def lead(self) -> Job:
        return self.unit[0].job

    @property
    def nodes(self) -> Sequence[QueuedJob]:
        return self.unit[self.first :]

    def groups(self) -> dict[JobRequirements, list[int]]:
        """The ranks by their requirements."""
        found: dict[JobRequirements, list[int]] = {}
        for rank in range(self.first, len(self.unit)):
            found.setdefault(self.unit[rank].requirements, []).append(rank)
        return found


def complete(unit: Sequence[QueuedJob]) -> bool:
    return [item.job.job_num for item in unit] == list(range(unit[0].spec.jobs_per_replica))


def no_cluster(capacity: Capacity, text: str = "") -> Note:
    """The note that no fleet takes a task on several nodes."""
    if not capacity.pools:
        return Note("the project", "has no fleet", "apply a configuration with `type: fleet` and `placement: cluster`")
    names = ", ".join(f"`{pool.view.fleet.name}`" for pool in capacity.pools[:5])
    hint = "set `placement: cluster` on a fleet whose hosts share a network"
    return Note("the run", text or f"has several nodes, and no fleet is a cluster (there are {names})", hint)

"""The snapshot for a pass over a volume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.volumes import Volume
from chalicelib.planning.kernel.snapshot import FleetView


@dataclass(frozen=True)
class VolumeSnapshot:
    """For `volume/<id>`, and for the outcome of an effect on it."""

    now: Micros
    volume: Volume
    facts: BackendFacts | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)  # the jobs of its attachments, by id
    instances: Mapping[str, Instance] = field(default_factory=dict)  # the machines of its attachments, by id
    wanted: bool = False  # a live run names it; read once it has been unused for long enough

    @property
    def unit(self) -> str:
        return self.volume.unit

    def nouns(self) -> Iterator[Noun]:
        yield self.volume
        yield from self.jobs.values()
        yield from self.instances.values()

    def views(self) -> tuple[FleetView, ...]:
        return ()

"""The snapshot for a pass over a project's queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gangs import Gang
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.volumes import Volume
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.market_answers import Answers
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.quotas import QuotaUsage, TokenUsage


@dataclass(frozen=True)
class QueueSnapshot:
    """For `queue/<project>`: the head of the queue, in order, and everything its jobs could be placed on."""

    now: Micros
    project_id: str
    queue: tuple[QueuedJob, ...]
    fleets: tuple[FleetView, ...]
    offers: OfferBook
    facts: Mapping[str, BackendFacts] = field(default_factory=dict)
    gangs: Mapping[str, Gang] = field(default_factory=dict)  # by the id of the first node's job
    volumes: Mapping[str, Volume] = field(default_factory=dict)  # the volumes that its jobs name, by name
    ahead: tuple[QueuedJob, ...] = ()  # tasks on several nodes that wait further ahead than this part of the queue
    answers: Answers = field(default_factory=dict)  # of markets, to what its jobs have asked
    usage: QuotaUsage | None = None  # None: the project has no quota
    tokens: Mapping[str, TokenUsage] = field(default_factory=dict)  # of the limits that its runs have, by id

    @property
    def unit(self) -> str:
        return f"queue/{self.project_id}"

    def nouns(self) -> Iterator[Noun]:
        for item in (*self.ahead, *self.queue):
            yield from (item.job, item.run)
        yield from self.gangs.values()
        yield from self.volumes.values()
        if self.usage is not None:
            yield self.usage.quota
        for usage in self.tokens.values():
            yield usage.spending
        for view in self.fleets:
            yield from view.nouns()

    def views(self) -> tuple[FleetView, ...]:
        return self.fleets

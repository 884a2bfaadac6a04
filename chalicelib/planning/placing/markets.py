"""Markets: backends that have no list of offers, and answer requests.

When a job is about to buy, each market that its fleets may buy from is asked. The job waits for the answers until a
deadline; the jobs behind it don't wait. Jobs that want the same share an answer. After a failed purchase the markets
are asked again, because most likely the machine was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job, MarketQuery
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.planning.kernel.plan import Effect, Note, Step
from chalicelib.planning.matching.market_answers import Answers, MarketAnswer, requests_of, silence
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.buying import is_full, may_grow
from chalicelib.planning.placing.capacity import Capacity

ANSWER_WITHIN: Micros = 20 * SECOND
ASK_AGAIN_EVERY: Micros = 10 * MINUTE  # for a job that waits for something else
CHECK_ANSWER_EVERY: Micros = 5 * SECOND  # the answer wakes the queue, unless that is lost


@dataclass(frozen=True)
class AskMarket(Effect):
    """Ask a market for offers, for the queue of a project. Its answer is kept beside the catalog."""

    request: str = ""  # as JSON


@dataclass(frozen=True)
class Unanswered:
    """What the decision about a job waits for. Those to ask are among the backends."""

    job: Job
    to_ask: tuple[tuple[MarketQuery, OfferRequest], ...]
    backends: tuple[str, ...]

    @property
    def message(self) -> str:
        return f"for offers of {' and '.join(f'`{name}`' for name in self.backends)}"


class Markets:
    """The markets in one pass. `answers`: what they replied to its jobs' requests."""

    def __init__(self, now: Micros, facts: Mapping[str, BackendFacts], answers: Answers) -> None:
        self._now, self._facts, self._answers = now, facts, answers
        self._any = any(each.live_offers for each in facts.values())
        self._sent = set[tuple[str, str]]()  # in this pass

    def offers(self) -> Iterator[Offer]:
        """What they have offered, as far as it still holds, each offer once."""
        seen = set[str]()
        for (backend, _), answer in self._answers.items():
            facts = self._facts.get(backend)
            if facts is not None and facts.live_offers and self._now - answer.at < facts.offers_last:
                for offer in answer.offers:
                    if offer.key not in seen:
                        seen.add(offer.key)
                        yield offer

    def step(self, unanswered: Unanswered) -> Step:
        """Asks, once for all jobs of the pass that want the same."""
        job = unanswered.job
        new: dict[tuple[str, str], MarketQuery] = {}
        effects = []
        for query, request in unanswered.to_ask:
            shared = (query.backend, query.key) in self._sent
            new[query.backend, query.key] = query.with_(shared=True) if shared else query
            if not shared:
                unit, text = f"market/{query.backend}/{job.id}", request.model_dump_json()
                effects.append(AskMarket(unit, query.backend, query.until, job.project_id, text))
        self._sent.update(new)
        remaining = [query for query in job.markets if (query.backend, query.key) not in new]
        job = job.with_(
            markets=(*remaining, *new.values()),
            message=f"waiting {unanswered.message}",
            due_at=self._now + CHECK_ANSWER_EVERY,
            last_processed_at=self._now,
        )
        return Step((job,), effects=tuple(effects))

    def unanswered(
        self, capacity: Capacity, unit: Sequence[QueuedJob], again: Micros | None = None
    ) -> Unanswered | None:
        """What has to be asked, or is awaited, before a machine is bought for the unit. `again`: when to ask anew,
        though nothing is about to be bought."""
        if not self._any:
            return None
        job = unit[0].job
        known = {(query.backend, query.key): query for query in job.markets}
        to_ask: list[tuple[MarketQuery, OfferRequest]] = []
        awaited = dict[str, None]()
        for backend, request in self._wanted(capacity, unit):
            query = known.get((backend, request.key))
            if query is None or self._spent(query, job, again):
                until = self._now + ANSWER_WITHIN
                attempts = len(job.attempts)
                fresh = MarketQuery(backend=backend, key=request.key, at=self._now, until=until, attempts=attempts)
                to_ask.append((fresh, request))
                awaited[backend] = None
            elif self._answer(query) is None and self._now < query.until:
                awaited[backend] = None
        return Unanswered(job, tuple(to_ask), tuple(awaited)) if awaited else None

    def silences(self, job: Job) -> Iterator[Note]:
        """What came of asking for the job, where that was nothing."""
        for query in job.markets:
            if note := silence(query.backend, self._answer(query), ANSWER_WITHIN):
                yield note

    def _wanted(self, capacity: Capacity, unit: Sequence[QueuedJob]) -> Iterable[tuple[str, OfferRequest]]:
        found: dict[tuple[str, str], OfferRequest] = {}
        for wants in dict.fromkeys(item.wants for item in unit):
            candidates = capacity.candidates(wants)
            for at, pool in enumerate(capacity.pools):
                query, count = candidates.order(at), capacity.count[pool.view.fleet.id]
                if query is None or capacity.awaits_first_machine(pool):
                    continue
                if is_full(pool, count) or not may_grow(pool, count, wants):
                    continue
                for backend, request in requests_of(query, self._facts):
                    found[backend, request.key] = request
        return [(backend, request) for (backend, _), request in found.items()]

    def _answer(self, query: MarketQuery) -> MarketAnswer | None:
        answer = self._answers.get((query.backend, query.key))
        return answer if answer is not None and answer.at >= query.at else None

    def _spent(self, query: MarketQuery, job: Job, again: Micros | None) -> bool:
        """Is the answer of no more use? One that came late, or never, stands until then."""
        if query.attempts != len(job.attempts):
            return True
        answer = self._answer(query)
        if answer is None and query.shared and self._now >= query.until:
            return True  # the job that was to ask may have ended before it did
        if again is not None or answer is None:
            return self._now - query.at >= (again or ASK_AGAIN_EVERY)
        return self._now - answer.at >= self._facts[query.backend].offers_last

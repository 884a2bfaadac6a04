"""Markets: backends that have no list of offers, and answer requests.

When a job is about to buy, each market that its fleets may buy from is asked. The job waits for the answers until a
deadline; the jobs behind it don't wait. Jobs that want the same share an answer. After a failed purchase the markets
are asked again, because most likely the machine was taken. So they are, once, after a deadline without an answer if
nothing else can be bought, because the question may have been lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.market_answers import MarketAnswer, MarketQuery
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.planning.kernel.plan import Effect, Note, Step
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.market_answers import Answers, requests_of, silence
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.matching.requirements import JobRequirements
from chalicelib.planning.placing.buying import is_full, may_grow, tried_by
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.quotas import Amounts, gpus_of

ANSWER_WITHIN: Micros = 20 * SECOND
ASK_AGAIN_EVERY: Micros = 10 * MINUTE  # for a job that waits for something else
CHECK_ANSWER_EVERY: Micros = 5 * SECOND  # the answer wakes the queue, unless that is lost


@dataclass(frozen=True)
class AskMarket(Effect):
    """Ask a market for offers, for the queue of a project or for a gateway. Its answer is kept beside the catalog."""

    request: str = ""  # as JSON
    wakes: str = ""  # the unit that waits for the answer; empty: the queue


@dataclass(frozen=True)
class Unanswered:
    """What the decision about a job waits for. Those to ask are among the backends."""

    job: Job
    to_ask: tuple[tuple[MarketQuery, OfferRequest], ...]
    known: tuple[MarketQuery, ...]  # the job's others that are still of use
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
        return self._offers(self._holds)

    def _offers(self, chosen: Callable[[str, MarketAnswer], bool]) -> Iterator[Offer]:
        """The offers of these answers, each as the newest answer has it."""
        seen = set[str]()
        for (backend, _), answer in sorted(self._answers.items(), key=lambda each: each[1].at, reverse=True):
            facts = self._facts.get(backend)
            if facts is not None and facts.live_offers and chosen(backend, answer):
                for offer in answer.offers:
                    if offer.key not in seen:
                        seen.add(offer.key)
                        yield offer

    def step(self, unanswered: Unanswered) -> Step:
        """Asks, once for all jobs of the pass that want the same."""
        job = unanswered.job
        effects = []
        for query, request in unanswered.to_ask:
            if (query.backend, query.key) not in self._sent:
                unit, text = f"market/{query.backend}/{job.id}", request.model_dump_json()
                effects.append(AskMarket(unit, query.backend, query.until, job.project_id, text))
                self._sent.add((query.backend, query.key))
        job = job.with_(
            markets=(*unanswered.known, *(query for query, _ in unanswered.to_ask)),
            message=f"waiting {unanswered.message}",
            due_at=self._now + CHECK_ANSWER_EVERY,
            last_processed_at=self._now,
        )
        return Step((job,), effects=tuple(effects))

    def unanswered(
        self, capacity: Capacity, unit: Sequence[QueuedJob], again: Micros | None = None, *, retry: bool = False
    ) -> Unanswered | None:
        """What has to be asked, or is awaited, before a machine is bought for the unit. `again`: when to ask anew,
        though nothing is about to be bought. `retry`: whether a question without an answer is repeated, once."""
        if not self._any:
            return None
        job = unit[0].job
        known = {(query.backend, query.key): query for query in job.markets}
        to_ask: list[tuple[MarketQuery, OfferRequest]] = []
        useful: list[MarketQuery] = []
        awaited = dict[str, None]()
        for backend, request in self._wanted(capacity, unit):
            query = known.get((backend, request.key))
            retried = query is not None and retry and self._may_retry(query)
            if query is None or retried or self._spent(query, job, again):
                fresh = MarketQuery(
                    backend=backend,
                    key=request.key,
                    at=self._now,
                    until=self._now + ANSWER_WITHIN,
                    attempts=len(job.attempts),
                    retried=retried,
                )
                to_ask.append((fresh, request))
                awaited[backend] = None
                continue
            useful.append(query)
            if self._answer(query) is None and self._now < query.until:
                awaited[backend] = None
        return Unanswered(job, tuple(to_ask), tuple(useful), tuple(awaited)) if awaited else None

    def silences(self, capacity: Capacity, unit: Sequence[QueuedJob]) -> Iterator[Note]:
        """What came of asking for the unit, where that was nothing."""
        wanted = self._wanted_keys(capacity, unit)
        for query in unit[0].job.markets:
            note = silence(query.backend, self._answer(query), ANSWER_WITHIN)
            if note and (query.backend, query.key) in wanted:
                yield note

    def silent(self, capacity: Capacity, unit: Sequence[QueuedJob]) -> bool:
        """Is there a market that may have something for the unit, but hasn't answered, or not lately?"""
        known = {(query.backend, query.key): self._answer(query) for query in unit[0].job.markets}
        answers = ((backend, known.get((backend, key))) for backend, key in self._wanted_keys(capacity, unit))
        return any(answer is None or not self._holds(backend, answer) for backend, answer in answers)

    def expected(self, capacity: Capacity, unit: Sequence[QueuedJob]) -> Amounts:
        """What the unit takes of a quota if what markets offered last, however long ago, is what it gets."""
        gpus = 0
        for item in unit:
            untaken = tried_by(item.job) | capacity.listings.keys()
            queries = self._to_buy(capacity, item.requirements)
            best = [found for query in queries if (found := self._last_offers.best(query, untaken)) is not None]
            if best:
                gpus += gpus_of(*min(best, key=lambda found: found[0].price * found[1] / found[2]))
        return Amounts(gpus, len(unit))

    @cached_property
    def _last_offers(self) -> OfferBook:
        return OfferBook(self._offers(lambda *_: True))

    def _wanted_keys(self, capacity: Capacity, unit: Sequence[QueuedJob]) -> set[tuple[str, str]]:
        return {(backend, request.key) for backend, request in self._wanted(capacity, unit)} if self._any else set()

    def _wanted(self, capacity: Capacity, unit: Sequence[QueuedJob]) -> Iterable[tuple[str, OfferRequest]]:
        found: dict[tuple[str, str], OfferRequest] = {}
        for requirements in dict.fromkeys(item.requirements for item in unit):
            for query in self._to_buy(capacity, requirements):
                for backend, request in requests_of(query, self._facts):
                    found[backend, request.key] = request
        return [(backend, request) for (backend, _), request in found.items()]

    def _to_buy(self, capacity: Capacity, requirements: JobRequirements) -> Iterator[Query]:
        """What the fleets would buy, those that can."""
        candidates = capacity.candidates(requirements)
        for at, pool in enumerate(capacity.pools):
            query, count = candidates.order(at), capacity.count[pool.view.fleet.id]
            if query is None or capacity.awaits_first_machine(pool):
                continue
            if not is_full(pool, count) and may_grow(pool, count, requirements):
                yield query

    def _holds(self, backend: str, answer: MarketAnswer) -> bool:
        return self._now - answer.at < self._facts[backend].offers_last

    def _answer(self, query: MarketQuery) -> MarketAnswer | None:
        answer = self._answers.get((query.backend, query.key))
        return answer if answer is not None and answer.at >= query.at else None

    def _may_retry(self, query: MarketQuery) -> bool:
        return self._answer(query) is None and self._now >= query.until and not query.retried

    def _spent(self, query: MarketQuery, job: Job, again: Micros | None) -> bool:
        """Is the answer of no more use? One that came late, or never, stands until then."""
        if query.attempts != len(job.attempts):
            return True
        answer = self._answer(query)
        if again is not None or answer is None:
            return self._now - query.at >= (again or ASK_AGAIN_EVERY)
        return not self._holds(query.backend, answer)


def least(unit: Sequence[QueuedJob]) -> Amounts:
    """What the unit takes of a quota at the least, whatever is bought for it."""
    gpus = [item.requirements.query.resources.gpu for item in unit]
    return Amounts(sum(each.count.min or 0 for each in gpus if each is not None), len(unit))

"""Markets are asked before a job buys, once; nobody behind it waits, and no market can keep it waiting for long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros, clock
from chalicelib.domain.jobs import Attempt, Job, JobStatus
from chalicelib.domain.market_answers import MarketAnswer, MarketQuery
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import CONTAINER, ClusterLimit, Offer, OfferTerms
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.markets import ANSWER_WITHIN, ASK_AGAIN_EVERY, AskMarket, Markets
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.quotas import QuotaUsage
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.planning.placing.test_quotas import quota
from tests.planning.situations.gangs import nodes
from tests.world import nouns as b

BAZAAR = BackendFacts(name="bazaar", live_offers=True, offers_last=MINUTE)
FACTS = {**b.FACTS, "bazaar": BAZAAR}


def listing(id: str, price: float) -> Offer:
    return b.offer("stall", price, backend="bazaar", terms=OfferTerms(listing=id))


@dataclass
class Day:
    """A queue over virtual time. The market's answers come when a test gives them."""

    items: list[QueuedJob]
    fleet: FleetView = field(default_factory=lambda: b.view(b.fleet("cloud"), nodes="0..9"))
    sold: tuple[Offer, ...] = ()  # by lists
    now: Micros = b.NOW
    answers: dict[tuple[str, str], MarketAnswer] = field(default_factory=dict)
    calls: list[AskMarket] = field(default_factory=list)
    bought: dict[str, Instance] = field(default_factory=dict)  # by the job's name
    notes: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)  # of purchases
    usage: QuotaUsage | None = None

    def check(self) -> Day:
        live = [item for item in self.items if item.job.status is JobStatus.submitted]
        book = OfferBook(self.sold, self.now, live=["bazaar"])
        snapshot = QueueSnapshot(
            self.now, b.PROJECT, tuple(live), (self.fleet,), book, FACTS, answers=self.answers, usage=self.usage
        )
        plan = decide_queue(snapshot)
        assert b.lint(snapshot, plan) == []
        self.notes = [f"{note.subject} {note.text}" for note in plan.notes]
        for step in plan.steps:
            self.events += [each.message for each in step.events if each.type is EventType.ordered]
            self.calls += [effect for effect in step.effects if isinstance(effect, AskMarket)]
            jobs = {noun.id: noun for noun in step.saves if isinstance(noun, Job)}
            known = {instance.id for instance in self.fleet.instances}
            made = [noun for noun in step.saves if isinstance(noun, Instance) and noun.id not in known]
            self.items = [replace(item, job=jobs.get(item.job.id, item.job)) for item in self.items]
            for instance in made:
                self.bought[next(iter(jobs.values())).name] = instance
                self.fleet = replace(
                    self.fleet,
                    fleet=next(noun for noun in step.saves if noun.kind == "fleet"),
                    instances=(*self.fleet.instances, instance),
                )
        return self

    def answer(self, *offers: Offer, error: str = "", lacking: str = "") -> Day:
        """The market answers what it was asked last."""
        request = OfferRequest.model_validate_json(self.calls[-1].request)
        self.answers["bazaar", request.key] = MarketAnswer(self.now, offers, error, lacking)
        return self

    def after(self, passed: Micros) -> Day:
        self.now += passed
        return self

    def fails(self, at: int, error: str = "it was taken") -> Day:
        """The purchase for a job fails, and the job is back in the queue."""
        item = self.items[at]
        instance = self.bought.pop(item.job.name)
        left = tuple(each for each in self.fleet.instances if each.id != instance.id)
        attempts = (*item.job.attempts, Attempt(offer_key=instance.offer.key, error=error))
        job = item.job.with_(status=JobStatus.submitted, assignment=None, attempts=attempts)
        self.fleet = replace(self.fleet, instances=left)
        self.items[at] = replace(item, job=job)
        return self

    def job(self, at: int = 0) -> Job:
        return self.items[at].job


def a_day(*names: str, **how: object) -> Day:
    return Day([b.queued(name, submitted_at=b.NOW) for name in names or ("train",)], **how)  # type: ignore[arg-type]


def test_a_job_has_a_market_asked_once_and_buys_what_it_answers() -> None:
    day = a_day().check()
    (effect,) = day.calls
    assert (effect.backend, effect.project_id) == ("bazaar", b.PROJECT) and not day.bought
    assert day.job().message == "waiting for offers of `bazaar`"
    assert day.after(5 * SECOND).check().calls == [effect], "once"
    day.answer(listing("dear", 2.0), listing("cheap", 1.0)).after(SECOND).check()
    assert day.bought["train-0-0"].offer.terms.listing == "cheap"
    assert len(day.calls) == 1


def test_what_is_listed_is_bought_if_it_is_cheaper_than_what_a_market_has() -> None:
    for price, backend in ((1.5, "bazaar"), (0.5, "aws")):
        day = a_day(sold=(b.offer(price=price),)).check()
        assert not day.bought
        assert day.answer(listing("one", 1.0)).check().bought["train-0-0"].offer.backend == backend


def test_the_event_of_a_purchase_says_what_the_market_was_asked_and_when() -> None:
    day = a_day().check().answer(listing("one", 1.0)).check()
    assert day.events == ["ordered for train-0-0: stall from bazaar"], "an answer of an earlier version"
    day = a_day().check()
    (key,) = day.answer(listing("old", 9.0)).answers
    text = OfferRequest.model_validate_json(day.calls[0].request).in_words
    day.answers[key] = MarketAnswer(day.now, (listing("a", 1.0), listing("b", 2.0)), request=text, took=SECOND // 4)
    why = f"asked at {clock(day.now)} for cpu=2.. memory=8GB.. disk=100GB.., on-demand: 2 offers in 0.2 s"
    assert day.after(5 * SECOND).check().events == [f"ordered for train-0-0: stall from bazaar ({why})"]
    assert a_day(sold=(b.offer(),)).check().answer().check().events == ["ordered for train-0-0: m1 from aws"]


def test_jobs_behind_one_that_waits_for_a_market_go_on() -> None:
    day = Day(
        [b.queued("train"), b.queued("other", b.run_spec(backends=["aws"]))],
        sold=(b.offer(),),
    ).check()
    assert list(day.bought) == ["other-0-0"]


def test_a_slow_market_is_waited_for_until_its_time_is_up() -> None:
    day = a_day(sold=(b.offer(price=5.0),)).check().after(ANSWER_WITHIN - 1).check()
    assert not day.bought
    assert day.after(1).check().bought["train-0-0"].offer.backend == "aws"
    assert len(day.calls) == 1


def test_a_market_that_is_late_fails_or_has_nothing_is_named_where_nothing_else_is_sold() -> None:
    nothing = "nowhere to run: backend `bazaar` was asked for offers and "
    late = a_day().check().after(ANSWER_WITHIN).check().after(ANSWER_WITHIN).check()
    assert late.job().message.startswith(f"{nothing}didn't answer within 20 seconds (try again later); ")
    failed = a_day().check().answer(error="Bazaar is closed.").check()
    assert failed.job().message.startswith(f"{nothing}couldn't answer: Bazaar is closed (try again later); ")
    empty = a_day().check().answer().check()
    assert empty.job().message.startswith(f"{nothing}has nothing that fits now; fleet `cloud` can grow, but no ")
    full = a_day().check().answer(lacking="n1 (cordoned).").check()
    assert full.job().message.startswith(f"{nothing}has nothing that fits now: n1 (cordoned); fleet `cloud` can ")
    for day in (late, failed, empty, full):
        assert day.job().finished or day.job().status is JobStatus.terminating


def test_after_a_machine_was_taken_the_market_is_asked_anew_and_another_is_bought() -> None:
    day = a_day().check().answer(listing("one", 1.0), listing("two", 2.0)).check()
    assert day.bought["train-0-0"].offer.terms.listing == "one"
    day.fails(0).after(SECOND).check()
    assert len(day.calls) == 2 and not day.bought, "what it had a moment ago may be gone, too"
    day.after(SECOND).answer(listing("one", 1.0), listing("three", 1.5), listing("two", 2.0)).check()
    assert day.bought["train-0-0"].offer.terms.listing == "three", "never the same again"


def test_two_jobs_get_two_machines_of_one_answer_and_never_one() -> None:
    day = a_day("one", "two").check()
    assert len(day.calls) == 1, "for both"
    day.answer(listing("a", 1.0), listing("b", 2.0)).check()
    assert [day.bought[f"{name}-0-0"].offer.terms.listing for name in ("one", "two")] == ["a", "b"]
    day = a_day("one", "two").check().answer(listing("a", 1.0)).check()
    assert list(day.bought) == ["one-0-0"]
    assert "nowhere to run" in day.job(1).message
    next_day = Day([b.queued("late")], fleet=day.fleet, answers=day.answers, now=day.now).check()
    next_day.answer(listing("a", 1.0)).check()
    assert not next_day.bought, "the fleet has it already, whatever the market says"


def test_a_question_that_was_lost_is_repeated_once_before_a_job_fails() -> None:
    day = a_day("one", "two").check()
    day.items.pop(0)  # it ended meanwhile, and what was decided about it was not committed
    day.after(ANSWER_WITHIN).check()
    assert len(day.calls) == 2 and day.job().queued
    assert day.answer(listing("a", 1.0)).check().bought
    alone = a_day("one").check().after(ANSWER_WITHIN).check()  # the server was restarted before it asked
    assert len(alone.calls) == 2 and alone.job().queued
    assert alone.job().message == "waiting for offers of `bazaar`"
    assert alone.answer(listing("a", 1.0)).check().bought
    never = a_day("one").check().after(ANSWER_WITHIN).check().after(ANSWER_WITHIN).check()
    assert len(never.calls) == 2 and not never.job().queued


def test_equal_jobs_wait_for_a_silent_market_together() -> None:
    names = [f"job{number}" for number in range(5)]
    listed = a_day(*names, sold=(b.offer(price=5.0),)).check().after(ANSWER_WITHIN).check()
    assert len(listed.bought) == 5 and len(listed.calls) == 1, "none asks after another"
    alone = a_day(*names).check().after(ANSWER_WITHIN).check()
    assert len(alone.calls) == 2 and all(item.job.queued for item in alone.items), "once more, for all"
    alone.after(ANSWER_WITHIN).check()
    assert len(alone.calls) == 2 and not any(item.job.queued for item in alone.items)


GPU_RUN = b.run_spec(resources={"gpu": "1.."})


def gpus(id: str, count: int) -> Offer:
    return listing(id, 1.0).with_(instance=b.offer("stall", 1.0, has=b.resources(8, 64, count)).instance)


def test_nobody_asks_for_a_job_that_waits_for_quota_whatever_the_market_has() -> None:
    for limit, why in (({"gpus": 0}, "it needs 1 GPU"), ({"jobs": 0}, "it needs 1 job")):
        day = Day([b.queued("train", GPU_RUN)], usage=QuotaUsage(quota(**limit), {})).check()
        assert not day.calls and day.job().message.startswith(f"waiting for quota: {why}")


def test_a_job_whose_quota_refuses_what_a_market_has_asks_seldom_and_outlives_its_silence() -> None:
    day = Day([b.queued("train", GPU_RUN)], usage=QuotaUsage(quota(gpus=4), {})).check()
    day.answer(gpus("large", 8)).check()
    assert day.job().message.startswith("waiting for quota: it needs 8 GPUs")
    day.after(ASK_AGAIN_EVERY - 1).check()
    assert len(day.calls) == 1 and day.job().message.startswith("waiting for quota: it needs 8 GPUs")
    assert len(day.after(1).check().calls) == 2
    for _ in range(3):
        day.after(ANSWER_WITHIN).check()
        assert day.job().message.startswith("waiting for quota: it needs 8 GPUs")
    assert len(day.calls) == 2
    day.after(ASK_AGAIN_EVERY).check()
    assert len(day.calls) == 3 and day.answer(gpus("small", 1)).check().bought


def test_of_two_answers_the_newer_says_what_a_machine_costs() -> None:
    older, newer = (MarketAnswer(b.NOW + at, (listing("x", price),)) for at, price in ((0, 1.0), (SECOND, 9.0)))
    markets = Markets(b.NOW + SECOND, FACTS, {("bazaar", "k1"): older, ("bazaar", "k2"): newer})
    assert [offer.price for offer in markets.offers()] == [9.0]


def test_what_is_made_to_order_is_another_offer_for_each_order() -> None:
    """Though it has one name: a pod of two CPUs and a pod of eight, on nodes of one type."""
    made = [b.offer("m5", 0.0, backend="bazaar", terms=OfferTerms(order=order)) for order in ("two", "eight")]
    answers = {("bazaar", offer.terms.order): MarketAnswer(b.NOW, (offer,)) for offer in made}
    assert {offer.terms.order for offer in Markets(b.NOW, FACTS, answers).offers()} == {"two", "eight"}


def test_a_job_keeps_and_names_only_what_is_asked_for_it_now() -> None:
    day = a_day().check().after(ANSWER_WITHIN)
    gone = MarketQuery(backend="bazaar", key="of a fleet that was changed", at=b.NOW, until=b.NOW)
    item = day.items[0]
    day.items[0] = replace(item, job=item.job.with_(markets=(gone, *item.job.markets)))
    assert len(day.check().job().markets) == 1
    ended = a_day().check().answer()
    item = ended.items[0]
    ended.items[0] = replace(item, job=item.job.with_(markets=(gone, *item.job.markets)))
    assert "didn't answer" not in ended.check().job().message and "has nothing that fits" in ended.job().message


def test_an_old_answer_is_none() -> None:
    day = a_day().check().answer(listing("one", 1.0)).after(BAZAAR.offers_last).check()
    assert not day.bought and len(day.calls) == 2
    assert day.answer(listing("one", 1.0)).check().bought
    silent = a_day().check().answer(listing("one", 1.0)).after(BAZAAR.offers_last).check()
    silent.after(ANSWER_WITHIN).check().after(ANSWER_WITHIN).check()
    assert not silent.bought and "didn't answer" in silent.job().message, "nor while the market says nothing newer"


def test_nobody_asks_for_a_job_that_has_a_place_or_may_buy_none() -> None:
    idle = b.machine(of=b.fleet("cloud"))
    day = a_day(fleet=b.view(b.fleet("cloud"), idle, nodes="0..9")).check()
    assert not day.calls and day.job().assignment is not None
    busy = b.holding(idle, b.job(b.run("other"))).with_(status=InstanceStatus.busy)
    full = a_day(fleet=b.view(b.fleet("cloud"), busy, nodes="0..1")).check()
    assert not full.calls and full.job().message.startswith("waiting for ")
    elsewhere = Day([b.queued("train", b.run_spec(backends=["aws"]))], sold=(b.offer(),)).check()
    assert not elsewhere.calls and elsewhere.bought
    reuse = Day([b.queued("train", b.run_spec(creation_policy="reuse"))]).check()
    assert not reuse.calls


def test_a_job_that_could_also_wait_for_a_machine_asks_first_and_then_seldom() -> None:
    of = b.fleet("cloud", next_instance_num=1)
    busy = b.holding(b.machine(of=of), b.job(b.run("other")))
    day = a_day(fleet=b.view(of, busy, nodes="0..9")).check()
    assert len(day.calls) == 1
    day.answer().check()
    assert day.job().message.startswith("waiting for ") and "bazaar" not in day.job().message
    assert len(day.after(ASK_AGAIN_EVERY - 1).check().calls) == 1
    assert len(day.after(1).check().calls) == 2
    assert day.answer(listing("one", 1.0)).check().bought


def test_a_fleet_that_buys_for_itself_says_that_no_market_is_asked_for_it() -> None:
    view = FleetView(b.fleet("cloud", to_create=1), b.fleet_spec(nodes="1"), ())
    plan = decide_fleet(FleetSnapshot(b.NOW, view, OfferBook((), live=["bazaar"]), FACTS))
    (note,) = plan.notes
    assert "those without a list (bazaar) are asked only for single jobs" in note.text and "`nodes: 0..`" in note.hint


def test_a_full_fleet_waits_for_room_before_anybody_is_asked() -> None:
    small = b.machine(of=b.fleet("cloud"), offer=b.offer(has=b.resources(1, 1)))
    spec = b.run_spec(resources={"cpu": 8})
    full = Day([b.queued("train", spec)], fleet=b.view(b.fleet("cloud"), small, nodes="0..1")).check()
    assert not full.calls
    assert full.job().message == "waiting for room in fleet `cloud` (1 of 1 nodes)"


def several(answer: MarketAnswer | None = None, *, multinode: bool = True) -> Plan:
    """A pass over a task on three nodes, whose market has given this answer."""
    (lead, *others), facts = nodes("train", 3), {**FACTS, "bazaar": BAZAAR.with_(multinode=multinode)}
    answers = {}
    if answer is not None:
        (asked,) = [effect for step in several().steps for effect in step.effects if isinstance(effect, AskMarket)]
        key = OfferRequest.model_validate_json(asked.request).key
        query = MarketQuery(backend="bazaar", key=key, at=b.NOW, until=b.NOW + ANSWER_WITHIN)
        lead, answers = replace(lead, job=lead.job.with_(markets=(query,))), {("bazaar", key): answer}
    fleet, book = b.view(b.fleet("cloud"), nodes="0..9", placement="cluster"), OfferBook((), b.NOW, live=["bazaar"])
    return decide_queue(QueueSnapshot(b.NOW, b.PROJECT, (lead, *others), (fleet,), book, facts, answers=answers))


def test_a_task_on_several_nodes_asks_for_all_at_once_and_buys_containers_that_reach_each_other() -> None:
    (step,) = several().steps
    (effect,) = step.effects
    assert isinstance(effect, AskMarket) and OfferRequest.model_validate_json(effect.request).nodes == 3
    alone, beside = (
        b.offer("pod", price, backend="bazaar", instance_runtime=CONTAINER, terms=OfferTerms(grants=grants))
        for price, grants in ((1.0, ()), (2.0, ("multinode",)))
    )
    plan = several(MarketAnswer(b.NOW, (listing("one", 0.5), alone.with_(region="other"), beside)))
    bought = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    assert [each.offer for each in bought] == [beside] * 3 and len({each.gang for each in bought}) == 1


def test_where_a_market_has_nothing_for_several_nodes_the_reason_is_named() -> None:
    (note,) = several(MarketAnswer(b.NOW, (listing("one", 0.5),))).notes
    assert "stall is one machine, and 3 are needed together" in note.text
    few = OfferTerms(grants=("multinode",), cluster=ClusterLimit(most=2, why="2 fit now", hint="ask for fewer"))
    pod = b.offer("pod", backend="bazaar", instance_runtime=CONTAINER, terms=few)
    (note,) = several(MarketAnswer(b.NOW, (pod,))).notes
    assert "pod can't have 3 machines in one cluster: 2 fit now" in note.text and note.hint == "ask for fewer"
    plan = several(multinode=False)
    assert not [effect for step in plan.steps for effect in step.effects], "its machines reach no others"

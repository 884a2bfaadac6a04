"""Gateways in containers of a backend that is asked for its offers."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gateways import Gateway, GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.gateways.gateway_machines import as_fleet
from chalicelib.planning.gateways.gateway_markets import ASK_AGAIN_EVERY
from chalicelib.planning.gateways.gateways import apply_report, decide_gateway
from chalicelib.planning.gateways.snapshots import GatewaySnapshot
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.purchases import Seen
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.instance import CHECK_ADDRESS_EVERY, decide_instance
from chalicelib.planning.machines.outcomes import decide_outcome
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.planning.matching.market_answers import Answers
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.markets import ANSWER_WITHIN, AskMarket
from tests.world import nouns as b
from tests.world.gateways import gateway
from tests.world.nouns import lint

FACTS = BackendFacts(
    name="arcade",
    machines=False,
    containers=True,
    gateways=True,
    gateway_containers=True,
    live_offers=True,
    offers_last=15 * SECOND,
)
POD = b.offer("node", 0.0, backend="arcade", has=b.resources(cpus=1, gb=1)).with_(instance_runtime="runner")


def wanted(**fields: Any) -> Gateway:
    text = fields.pop("configuration", '{"type": "gateway", "backend": "arcade", "region": "eu"}')
    return gateway(fleet="", backend="arcade", region="eu", configuration=text, **fields)


def decided(
    of: Gateway, *machines: Instance, answers: Answers | None = None, now: int = b.NOW
) -> tuple[Gateway, list[Instance], Plan]:
    held = {each.id: each for each in machines}
    snapshot = GatewaySnapshot(
        now, of, held, offers=OfferBook(live=("arcade",)), facts={"arcade": FACTS}, answers=answers or {}
    )
    plan = decide_gateway(snapshot)
    assert lint(snapshot, plan) == []
    saves = [noun for step in plan.steps for noun in step.saves]
    found = next((noun for noun in saves if isinstance(noun, Gateway)), of)
    return found, [noun for noun in saves if isinstance(noun, Instance)], plan


def asked(plan: Plan) -> list[AskMarket]:
    return [each for step in plan.steps for each in step.effects if isinstance(each, AskMarket)]


def answered(of: Gateway, *answers: MarketAnswer) -> Answers:
    """To its questions, in their order."""
    return {(each.backend, each.key): answer for each, answer in zip(of.orders.markets, answers, strict=True)}


def test_its_backend_is_asked_once_for_a_small_container_and_it_waits_for_the_answer() -> None:
    of, machines, plan = decided(wanted())
    (effect,) = asked(plan)
    request = OfferRequest.model_validate_json(effect.request)
    assert not machines and (effect.backend, effect.wakes) == ("arcade", of.unit)
    assert (request.regions, request.resources.cpu.count.min, request.resources.memory.min) == (("eu",), 1, 1.0)
    assert of.message == "waiting for offers of `arcade`" and of.due_at == b.NOW + ANSWER_WITHIN
    again, machines, plan = decided(of, now=b.NOW + SECOND)
    assert not (machines or asked(plan)) and again.orders == of.orders


def test_a_type_is_asked_for_whatever_its_processor() -> None:
    text = '{"type": "gateway", "backend": "arcade", "region": "eu", "instance_type": "node"}'
    of, _, plan = decided(wanted(configuration=text))
    requests = [OfferRequest.model_validate_json(each.request) for each in asked(plan)]
    assert [(each.instance_types, each.resources.cpu.arch) for each in requests] == [
        (("node",), "x86"),
        (("node",), "arm"),
    ]
    of, (machine,), _ = decided(of, answers=answered(of, MarketAnswer(b.NOW), MarketAnswer(b.NOW, (POD,))))
    assert machine.offer == POD


def test_a_container_of_the_answer_is_bought_and_asked_for_anew_when_it_is_refused() -> None:
    of, _, _ = decided(wanted())
    of, (machine,), plan = decided(of, answers=answered(of, MarketAnswer(b.NOW + SECOND, (POD,))), now=b.NOW + SECOND)
    assert machine.offer == POD and machine.of_gateway and not asked(plan)
    gone = machine.with_(status=InstanceStatus.terminated, reason=InstanceReason.error, message="no address")
    late = b.NOW + 3 * MINUTE
    of, machines, plan = decided(of, gone, answers=answered(of, MarketAnswer(b.NOW + SECOND, (POD,))), now=late)
    assert not machines and len(asked(plan)) == 1 and of.orders.tried == (POD.key,)
    of, machines, plan = decided(of, answers=answered(of, MarketAnswer(late, (POD,))), now=late)
    assert not machines and (of.message, of.orders.paused_until) == ("no address", late + MINUTE), "all were tried"
    of, machines, plan = decided(of, now=late + SECOND)
    assert not (machines or asked(plan)), "nobody is asked during a pause"


def test_what_its_backend_lacks_is_its_message_until_it_is_asked_again() -> None:
    of, _, _ = decided(wanted())
    for answer, text in (
        (MarketAnswer(b.NOW, lacking="east: cpu-1 (cordoned)"), "has nothing that fits now: east: cpu-1 (cordoned)"),
        (MarketAnswer(b.NOW, error="the token is refused"), "couldn't answer: the token is refused"),
    ):
        found, machines, plan = decided(of, answers=answered(of, answer), now=b.NOW + SECOND)
        assert not (machines or asked(plan)) and found.message.endswith(text)
        assert found.due_at is not None and b.NOW < found.due_at <= b.NOW + ASK_AGAIN_EVERY
    silent, _, plan = decided(of, now=b.NOW + ANSWER_WITHIN)
    assert "didn't answer" in silent.message and not asked(plan)
    _, _, plan = decided(of, now=b.NOW + ASK_AGAIN_EVERY)
    assert len(asked(plan)) == 1


def test_it_runs_once_the_world_can_reach_it() -> None:
    of, _, _ = decided(wanted(name="door"))
    answers = answered(of, MarketAnswer(b.NOW, (POD,)))
    of, (machine,), _ = decided(of, answers=answers)
    joined = machine.with_(status=InstanceStatus.idle, started_at=b.NOW, hostname="")
    draft = Draft(b.NOW)
    of = apply_report(draft, of, joined, "running", "")
    of, _, _ = decided(of, joined)
    assert of.status is GatewayStatus.provisioning and of.message == "door-0: waiting for its public address"
    of, _, _ = decided(of, joined.with_(hostname="203.0.113.9"))
    (replica,) = of.replicas
    assert (replica.state, replica.hostname) == (ReplicaState.running, "203.0.113.9")
    assert of.status is GatewayStatus.running and of.message == ""


def test_only_its_provider_says_where_the_world_reaches_its_container() -> None:
    of, _, _ = decided(wanted(name="door"))
    of, (machine,), _ = decided(of, answers=answered(of, MarketAnswer(b.NOW, (POD,))))
    created = machine.with_(status=InstanceStatus.provisioning, act_until=None, due_at=b.NOW)

    def passed(of_now: Instance, presence: Presence | None, outcome: Seen | None = None) -> tuple[Instance, Step]:
        snapshot = InstanceSnapshot(b.NOW, of_now, presence, as_fleet(of), (), FACTS)
        plan = decide_instance(snapshot) if outcome is None else decide_outcome(snapshot, outcome)
        assert lint(snapshot, plan) == []
        (step,) = plan.steps
        (saved,) = (noun for noun in step.saves if isinstance(noun, Instance))
        return saved, step

    waiting, step = passed(created, None)
    assert waiting.status is InstanceStatus.provisioning, "no job has to need it"
    assert [type(each) for each in step.effects] == [purchases.Describe]
    reported = b.presence_of(created, facts=b.host_facts(hostname="pod-7", runtimes=("inside",)))
    joined, step = passed(waiting, reported)
    assert (joined.status, joined.hostname) == (InstanceStatus.idle, "")
    assert [type(each) for each in step.effects] == [purchases.Describe]
    reached, step = passed(
        joined, reported, Seen(purchases.unit_of(joined), joined.epoch, "running", "lb.example.com", "10.0.0.9")
    )
    assert (reached.hostname, step.wake) == ("lb.example.com", (of.unit,))
    never = Seen(
        purchases.unit_of(joined), joined.epoch, "gone", refused="Unfit", message="it gets no address: no room"
    )
    away = InstanceSnapshot(b.NOW, reached, reported, as_fleet(of), (), FACTS)
    (step,) = decide_outcome(away, never).steps
    (left,) = step.saves
    assert left == reached.with_(message=left.message, last_processed_at=left.last_processed_at), "it may come back"  # type: ignore[attr-defined]
    ended, _ = passed(joined, reported, never)
    assert (ended.status, ended.message) == (InstanceStatus.terminating, "it gets no address: no room")


def test_an_address_that_has_gone_is_the_gateway_s_message_until_there_is_one_again() -> None:
    of, _, _ = decided(wanted(name="door"))
    of, (machine,), _ = decided(of, answers=answered(of, MarketAnswer(b.NOW, (POD,))))
    running = machine.with_(status=InstanceStatus.idle, act_until=None, started_at=b.NOW, hostname="203.0.113.9")
    of = apply_report(Draft(b.NOW), of, running, "running", "")

    def after(state: Any, hostname: str = "", **more: str) -> tuple[str, GatewayStatus]:
        nonlocal of, running
        seen = Seen(purchases.unit_of(running), running.epoch, state, hostname, **more)  # type: ignore[arg-type]
        snapshot = InstanceSnapshot(b.NOW, running, None, as_fleet(of), (), FACTS)
        plan = decide_outcome(snapshot, seen)
        assert lint(snapshot, plan) == []
        for step in plan.steps:
            assert step.wake == (of.unit,)
            (running,) = (noun for noun in step.saves if isinstance(noun, Instance))
        of, _, _ = decided(of, running)
        return of.message, of.status

    assert after("running", "203.0.113.9") == ("", GatewayStatus.running)
    assert after("pending") == ("door-0: its public address 203.0.113.9 is gone", GatewayStatus.running)
    why = "The service door gets no address: the quota is used up."
    assert after("gone", refused="Unfit", message=why) == (
        f"door-0: its public address 203.0.113.9 is gone: {why}",
        GatewayStatus.running,
    )
    assert after("running", "203.0.113.10") == ("", GatewayStatus.running) and running.hostname == "203.0.113.10"


def test_what_a_running_replica_lacks_is_the_gateway_s_message() -> None:
    of, _, _ = decided(wanted(name="door"))
    of, (machine,), _ = decided(of, answers=answered(of, MarketAnswer(b.NOW, (POD,))))
    running = machine.with_(status=InstanceStatus.idle, started_at=b.NOW, hostname="203.0.113.9")
    for message in ("", "no stream has come", ""):
        of = apply_report(Draft(b.NOW), of, running, "running", message)
        of, _, _ = decided(of, running)
        assert (of.status, of.message) == (GatewayStatus.running, message and f"door-0: {message}")


def test_its_container_is_described_now_and_then_while_it_runs() -> None:
    """Its cluster may give it another address, which nothing else would show."""
    of, _, _ = decided(wanted(name="door"))
    of, (machine,), _ = decided(of, answers=answered(of, MarketAnswer(b.NOW, (POD,))))
    running = machine.with_(status=InstanceStatus.idle, act_until=None, hostname="lb.example.com", due_at=b.NOW)

    def described(now: int) -> list[purchases.Describe]:
        nonlocal running
        presence = b.presence_of(running, last=now, facts=b.host_facts(hostname="pod-7", runtimes=("inside",)))
        plan = decide_instance(InstanceSnapshot(now, running, presence, as_fleet(of), (), FACTS))
        saves = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
        running = saves[-1] if saves else running
        return [each for step in plan.steps for each in step.effects if isinstance(each, purchases.Describe)]

    assert len(described(b.NOW)) == 1
    assert not described(b.NOW + SECOND), "not each time that something wakes it"
    assert len(described(b.NOW + CHECK_ADDRESS_EVERY)) == 1

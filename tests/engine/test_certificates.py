"""Certificates from the first question of a gateway to the last renewal, on virtual time, whoever is killed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.certificates import CertificateStatus, Registration
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND
from chalicelib.engine.certificate_authority import Unregistered
from chalicelib.errors import Bug, InvalidCredentials, Throttled, Transient, Unfit
from chalicelib.machines.certificate import (
    CHECK_ISSUED_EVERY,
    ORDER_RETRY,
    ORDER_SELDOM,
    POLL_EVERY,
    TO_ANSWER,
    TO_CALL,
    TO_VALIDATE,
    UNUSED,
)
from chalicelib.planning.gateways.certificates import (
    AnswerChallenge,
    CollectCertificate,
    LookAtOrder,
    PlaceOrder,
    conclude_certificate,
    decide_certificate,
)
from chalicelib.planning.gateways.snapshots import CertificateSnapshot
from chalicelib.planning.kernel.plan import Outcome
from chalicelib.store import nouns
from chalicelib.store.port import Change
from chalicelib.usecases.services import certificates
from tests.world import nouns as b
from tests.world.certificates import HOST, LIFE, Killed, Stage
from tests.world.gateways import carrying, gateway

CALLS = ("register", "order", "answer", "check", "collect")
STEPS = (PlaceOrder, AnswerChallenge, LookAtOrder, CollectCertificate)
issued = CertificateStatus.issued


@pytest.fixture
def stage() -> Stage:
    return Stage()


def has_one(stage: Stage) -> bool:
    found = stage.found()
    return found is not None and found.status is issued


def certified(stage: Stage) -> Stage:
    stage.until(lambda: has_one(stage))
    return stage


def test_a_host_that_a_gateway_is_told_of_gets_a_certificate(stage: Stage) -> None:
    assert stage.ask().certificates == {}
    certified(stage)
    assert stage.ask().certificates == {HOST: {"certificate": f"CERTIFICATE 1 OF {HOST}", "key": "PRIVATE KEY 1"}}
    assert stage.ask().challenges == {}
    assert stage.authority.issued == stage.authority.probed == 1
    assert stage.messages() == [
        f"certificate for {HOST} requested",
        *(
            f"certificate of {HOST}: {step}"
            for step in ("waiting → ordered", "ordered → validating", "validating → finalizing", "finalizing → issued")
        ),
    ]


def test_the_authority_looks_only_once_the_gateway_answers(stage: Stage) -> None:
    answer = stage.ask()
    stage.settle()
    assert stage.certificate().status is CertificateStatus.ordered
    stage.place.at += 3 * HOUR
    stage.settle()
    assert "answer" not in stage.authority.calls  # the gateway hasn't asked since
    answer = stage.ask()
    (token,) = answer.challenges
    assert answer.challenges[token] == stage.answers[token] and not stage.certificate().heard
    certified(stage)
    assert stage.authority.probed == 1


def test_a_replica_whose_machine_is_away_isnt_waited_for(stage: Stage) -> None:
    machines = [b.host(0, b.fleet("edge")), b.host(1, b.fleet("edge"), unreachable_since=b.NOW)]
    stage.place.save(*machines, carrying(stage.place.again(stage.gateway), *machines))
    certified(stage)
    assert stage.certificate().heard_by == ()


def test_another_projects_gateway_must_prove_the_same_host_itself(stage: Stage) -> None:
    certified(stage)
    other = gateway("theirs").with_(project_id="their-project", version=0, due_at=None)
    stage.place.save(other)
    stage.authority.proved = 30 * DAY  # what an account has proved is good for weeks
    certificates.gateway_certificates(stage.place.plane, other, [HOST])
    stage.settle()
    answer = certificates.gateway_certificates(stage.place.plane, other, [HOST])
    assert answer.certificates == {} and len(answer.challenges) == 1
    assert len(stage.authority.accounts) == 2


def test_what_a_project_has_proved_it_neednt_prove_again(stage: Stage) -> None:
    certified(stage)
    other = gateway("ours").with_(version=0, due_at=None)
    stage.place.save(other)
    stage.authority.proved = 30 * DAY
    certificates.gateway_certificates(stage.place.plane, other, [HOST])
    for _ in range(5):
        stage.after(5 * SECOND)
    assert list(certificates.gateway_certificates(stage.place.plane, other, [HOST]).certificates) == [HOST]
    assert stage.authority.probed == 1 and len(stage.authority.accounts) == 1


def test_each_replica_of_a_gateway_must_answer(stage: Stage) -> None:
    machines = [b.host(num, b.fleet("edge")) for num in range(3)]
    stage.place.save(carrying(stage.place.again(stage.gateway), *machines))
    answer = certificates.gateway_certificates(stage.place.plane, stage.place.again(stage.gateway), [HOST])
    stage.settle()
    answer = certificates.gateway_certificates(stage.place.plane, stage.place.again(stage.gateway), [HOST])
    stage.answers = dict(answer.challenges)
    for num in (2, 2, 0):
        stage.report([stage.certificate()], num)
        stage.settle()
        assert "answer" not in stage.authority.calls
    assert stage.certificate().heard_by == (0, 2)
    stage.report([stage.certificate()], 1)
    stage.settle()
    assert stage.authority.probed == 1


def test_a_gateway_that_never_answers_has_its_order_placed_anew(stage: Stage) -> None:
    stage.ask()
    stage.settle()
    stage.place.at += TO_ANSWER
    stage.settle()
    waits = stage.certificate()
    assert waits.status is CertificateStatus.waiting and "is its machine running?" in waits.message
    assert stage.authority.probed == 0


def test_another_order_is_answered_only_once_the_gateway_has_heard_of_it(stage: Stage) -> None:
    refused_once(stage)
    assert stage.certificate() == stage.certificate().with_(answered_at=None, looks=0, act_until=None)
    again(stage)
    assert stage.certificate().status is CertificateStatus.ordered
    assert stage.authority.probed == 1


def test_a_replica_that_answered_must_answer_for_another_order_too(stage: Stage) -> None:
    stage.place.save(carrying(stage.place.again(stage.gateway), *(b.host(num, b.fleet("edge")) for num in range(2))))
    stage.ask()
    stage.settle()
    stage.report(stage.ask().unconfirmed, 0)
    stage.place.at += TO_ANSWER
    stage.settle()
    again(stage)
    stage.report(stage.ask().unconfirmed, 1)
    stage.settle()
    assert stage.authority.probed == 0


def test_many_hosts_of_a_gateway_have_one_each_and_one_account(stage: Stage) -> None:
    stage.hosts = [f"{name}.example.com" for name in "abc"]
    stage.until(lambda: len(stage.ask().certificates) == 3)
    assert len(stage.authority.accounts) == 1
    assert {each.name for each in certificates.of_gateway(stage.place.plane, stage.gateway.id)} == set(stage.hosts)


@pytest.mark.slow
def test_it_is_renewed_once_two_thirds_of_its_life_are_over(stage: Stage) -> None:
    certified(stage)
    first = stage.certificate().pair
    assert first is not None and first.until - first.since == LIFE
    end = first.since + LIFE * 2 // 3
    while stage.place.at + HOUR < end:
        stage.after(min(6 * HOUR, end - HOUR - stage.place.at))
        assert stage.authority.issued == 1
    shown = stage.ask().certificates
    stage.until(lambda: stage.authority.issued == 2 and has_one(stage), MINUTE)
    assert stage.place.at < end + HOUR
    assert stage.ask().certificates[HOST]["certificate"] == f"CERTIFICATE 2 OF {HOST}"
    assert shown[HOST]["key"] != stage.ask().certificates[HOST]["key"]


@pytest.mark.slow
def test_what_is_there_serves_while_its_successor_is_asked_for(stage: Stage) -> None:
    certified(stage)
    stage.reachable = False
    pair = stage.certificate().pair
    assert pair is not None
    while stage.place.at < pair.until - HOUR:
        stage.after(6 * HOUR)
        if stage.place.at < pair.until:
            assert HOST in stage.ask().certificates
    stage.after(7 * HOUR)
    assert HOST not in stage.ask().certificates  # it has expired: the gateway shows nobody's
    stage.reachable = True
    stage.until(lambda: HOST in stage.ask().certificates, MINUTE)
    assert stage.certificate().failures == 0


@pytest.mark.slow
def test_a_host_that_cannot_be_reached_is_tried_ever_less_often_and_says_why(stage: Stage) -> None:
    stage.reachable = False
    at: list[int] = []
    begin = stage.place.at
    while stage.place.at < begin + 30 * HOUR:
        # Its gateway takes the challenge, though nobody reaches it.
        stage.place.at += 10 * SECOND
        stage.settle()
        answer = stage.ask()
        stage.report(answer.unconfirmed)
        stage.settle()
        at += [stage.place.at] * (stage.authority.probed - len(at))
    pauses = [(later - earlier) / MINUTE for earlier, later in pairwise(at)]
    assert [round(each) for each in pauses[:9]] == [5, 10, 20, 40, 80, 160, 320, 360, 360]
    assert max(sum(hour <= each < hour + HOUR for each in at) for hour in at) <= 5  # as Let's Encrypt allows
    message = stage.certificate().message
    assert f"http://{HOST}/.well-known/acme-challenge/" in message
    assert "connection refused" in message and "DNS record with the gateway's address" in message
    assert "The next attempt is at " in message
    assert any("refused" in line and HOST in line for line in stage.messages())


def test_a_host_that_is_reachable_at_last_has_its_certificate(stage: Stage) -> None:
    stage.reachable = False
    stage.ask()
    stage.settle()
    stage.report(stage.ask().unconfirmed)
    stage.settle()
    stage.place.at += 10 * SECOND
    stage.settle()
    assert stage.certificate().failures == 1
    stage.reachable = True
    stage.until(lambda: has_one(stage), MINUTE)
    assert stage.certificate().message == "" and stage.certificate().failures == 0


def refused_once(stage: Stage) -> Stage:
    """Nobody reaches the host, and it is a while until the next attempt."""
    stage.reachable = False
    stage.ask()
    stage.settle()
    stage.report(stage.ask().unconfirmed)
    stage.until(lambda: bool(stage.certificate().failures))
    return stage


def again(stage: Stage) -> None:
    certificates.retry_failed(stage.place.plane, stage.place.again(stage.gateway))
    stage.ask()
    stage.settle()


def test_who_has_mended_what_was_wrong_neednt_wait(stage: Stage) -> None:
    refused_once(stage)
    (seen,) = certificates.shown(stage.place.plane, stage.place.again(stage.gateway))
    due_at = stage.certificate().due_at
    assert (seen.host, seen.state, seen.until, seen.next_attempt_at) == (HOST, "failed", None, due_at)
    assert due_at is not None and "connection refused" in seen.message
    stage.reachable = True
    stage.until(lambda: (again(stage), has_one(stage))[1], SECOND, tries=30)
    assert stage.place.at < due_at
    (seen,) = certificates.shown(stage.place.plane, stage.place.again(stage.gateway))
    pair = stage.certificate().pair
    assert pair is not None
    assert (seen.state, seen.until, seen.message, seen.next_attempt_at) == ("issued", pair.until, "", None)
    before = stage.certificate()
    again(stage)
    assert stage.certificate() == before  # nothing failed, so nothing is asked for


def test_a_pause_that_the_authority_asks_for_is_kept(stage: Stage) -> None:
    refused_once(stage)
    stage.authority.faults["order"] = [Throttled("too many orders", retry_after=1800)]
    again(stage)
    orders, due_at = len(stage.authority.orders), stage.certificate().due_at
    assert due_at is not None and due_at >= stage.place.at + 1700 * SECOND
    again(stage)
    assert (len(stage.authority.orders), stage.certificate().due_at) == (orders, due_at)


def test_an_authority_that_can_be_reached_again_is_called_at_once(stage: Stage) -> None:
    stage.authority.faults["order"] = [Transient("The certificate authority doesn't answer.") for _ in range(9)]
    stage.ask()
    stage.until(lambda: not stage.authority.faults["order"], MINUTE)
    due_at = stage.certificate().due_at
    assert due_at is not None and due_at > stage.place.at + 10 * MINUTE
    again(stage)
    assert len(stage.authority.orders) == 1 and stage.certificate().status is not CertificateStatus.waiting


class Slower:
    """A store in which somebody else changes the account between the reading of it and the next writing."""

    def __init__(self, stage: Stage) -> None:
        self._store, self._place = (
            stage.place.store,
            keys.registration(stage.gateway.project_id, stage.authority.directory),
        )
        self.overtaken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change]) -> None:
        if not self.overtaken and any(change.key == self._place for change in changes):
            self.overtaken = True
            known = nouns.find(self._store, Registration, self._place)
            assert known is not None
            self._store.commit([nouns.put(known.with_(url=""))])
        self._store.commit(changes)


def test_an_account_that_two_forget_at_once_is_registered_again(stage: Stage) -> None:
    certified(stage)
    store = Slower(stage)
    stage.place.plane = replace(stage.place.plane, store=store)
    stage.authority.accounts.clear()
    stage.authority.faults["order"] = [Unregistered("The certificate authority doesn't know the account.")]
    stage.hosts = ["other.example.com"]
    stage.until(lambda: list(stage.ask().certificates) == stage.hosts, MINUTE)
    assert store.overtaken and len(stage.authority.accounts) == 1


@pytest.mark.parametrize("call", CALLS)
def test_whoever_is_killed_before_the_answer_goes_on_with_the_same_order(stage: Stage, call: str) -> None:
    stage.authority.dies = call
    killed = 0
    for _ in range(300):
        try:
            stage.after(SECOND)
        except Killed:
            killed += 1
        if has_one(stage):
            break
    assert (killed, stage.authority.issued, stage.authority.probed) == (1, 1, 1)
    assert len(stage.authority.orders) == len(stage.authority.accounts) == 1
    assert HOST in stage.ask().certificates


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_an_effect_that_is_lost_is_repeated(stage: Stage, step: type) -> None:
    lost: list[object] = []
    stage.lost = lambda effect: isinstance(effect, step) and not lost and not lost.append(effect)  # type: ignore[func-returns-value]
    certified(stage)
    assert (len(lost), stage.authority.issued, len(stage.authority.orders)) == (1, 1, 1)


@pytest.mark.parametrize("call", CALLS)
def test_an_effect_that_comes_twice_makes_nothing_twice(stage: Stage, call: str) -> None:
    seen = []
    stage.lost = lambda effect: bool(seen.append(effect))  # type: ignore[func-returns-value]
    certified(stage)
    before = (stage.authority.issued, len(stage.authority.orders), list(stage.authority.calls))
    for effect in seen:
        stage.executor.execute(effect)
    assert (stage.authority.issued, len(stage.authority.orders), list(stage.authority.calls)) == before


@pytest.mark.parametrize("call", CALLS)
def test_an_authority_that_is_away_keeps_its_order(stage: Stage, call: str) -> None:
    stage.authority.faults[call] = [Transient("The certificate authority doesn't answer.") for _ in range(4)]
    stage.until(lambda: has_one(stage), SECOND)
    assert not stage.authority.faults[call]
    assert len(stage.authority.orders) == 1 and stage.certificate().failures == 0
    messages = [line for line in stage.messages() if "doesn't answer. The next attempt is at" in line]
    assert 2 <= len(messages) <= 3  # at the first, the second and the fourth: one that looks has looked once before


@pytest.mark.parametrize("call", CALLS)
def test_an_authority_that_says_how_long_to_wait_is_waited_for(stage: Stage, call: str) -> None:
    stage.authority.faults[call] = [Throttled("too many calls", retry_after=1800)]
    stage.until(lambda: not stage.authority.faults[call], SECOND)
    begin = stage.place.at
    assert "too many calls The next attempt is at" in stage.certificate().message
    stage.until(lambda: call in stage.authority.calls, 10 * SECOND)
    assert 30 * MINUTE <= stage.place.at - begin < 31 * MINUTE


@pytest.mark.parametrize("error", [Unfit, InvalidCredentials])
def test_a_refused_order_waits_as_after_a_failure(stage: Stage, error: type[Exception]) -> None:
    stage.authority.faults["order"] = [error("it certifies no such name")]
    stage.ask()
    stage.settle()
    refused = stage.certificate()
    assert refused.status is CertificateStatus.waiting and refused.failures == 1
    assert refused.message.startswith("it certifies no such name")
    assert refused.due_at is not None and refused.due_at - stage.place.at >= ORDER_RETRY - SECOND
    assert any("it certifies no such name" in line for line in stage.messages())
    certified(stage)


def test_an_order_that_the_authority_forgot_is_placed_anew(stage: Stage) -> None:
    stage.ask()
    stage.settle()
    stage.authority.orders.clear()
    stage.until(lambda: has_one(stage), MINUTE)
    assert stage.authority.issued == 1


def test_an_order_at_another_authority_is_given_up(stage: Stage) -> None:
    stage.ask()
    stage.settle()
    stage.authority.directory = "https://other.test/directory"
    stage.authority.accounts.clear()
    stage.until(lambda: has_one(stage), MINUTE)
    order = next(iter(stage.authority.orders.values()))
    assert order.state == "pending"  # the first is left to its authority
    assert stage.authority.issued == 1


def test_who_concludes_a_call_says_when_the_next_is_due(stage: Stage) -> None:
    """A pass sleeps until what it knows to be due: the repetition of the call, minutes later."""
    stage.authority.slow = 3
    stage.ask()
    stage.settle()
    stage.report(stage.ask().unconfirmed)
    stage.place.reconciler().run(sorted(stage.place.take_woken()))
    (effect,) = stage.place.effects
    stage.executor.execute(effect)
    waits = stage.certificate()
    assert waits.due_at is not None and waits.due_at - stage.place.at <= 3 * SECOND
    assert waits.unit in stage.place.take_woken()


def test_an_authority_that_never_decides_has_another_order(stage: Stage) -> None:
    stage.authority.slow = 100_000
    stage.until(lambda: stage.authority.probed == 1)
    answered = stage.certificate().answered_at
    assert answered is not None
    stage.place.at = answered + TO_VALIDATE - SECOND
    stage.settle()
    assert stage.certificate().status is CertificateStatus.validating
    stage.place.at = answered + TO_VALIDATE
    stage.place.save(stage.certificate().with_(due_at=stage.place.at))
    stage.place.reconciler().run([stage.certificate().unit])
    waits = stage.certificate()
    assert waits.status is CertificateStatus.waiting and "neither issued nor refused it" in waits.message


def test_a_slow_authority_is_asked_less_and_less_often(stage: Stage) -> None:
    stage.authority.slow = 12
    certified(stage)
    assert stage.authority.calls.count("check") < 20


def test_what_fails_after_a_long_wait_is_tried_again_as_soon_as_any_other(stage: Stage) -> None:
    stage.authority.slow = 12
    stage.authority.faults["collect"] = [Transient("The certificate authority doesn't answer.")]
    stage.until(lambda: not stage.authority.faults["collect"], SECOND)
    due_at = stage.certificate().due_at
    assert due_at is not None and due_at <= stage.place.at + 2 * POLL_EVERY


def test_what_fails_after_an_order_that_took_long_is_tried_again_as_soon(stage: Stage) -> None:
    stage.authority.faults["order"] = [Transient("The certificate authority doesn't answer.") for _ in range(5)]
    stage.authority.faults["answer"] = [Transient("The certificate authority doesn't answer.")]
    stage.until(lambda: not stage.authority.faults["answer"], SECOND)
    due_at = stage.certificate().due_at
    assert due_at is not None and due_at <= stage.place.at + 2 * POLL_EVERY


def test_a_host_that_is_not_used_any_more_is_not_renewed(stage: Stage) -> None:
    certified(stage)
    stage.hosts = ()
    pair = stage.certificate().pair
    assert pair is not None
    while stage.place.at < pair.until - DAY:
        stage.after(DAY)
        assert not stage.certificate().dropped
    assert stage.authority.issued == 1
    stage.after(2 * DAY)
    dropped = stage.certificate()
    assert dropped.dropped and dropped.pair is None and dropped.place().expires_at is not None
    stage.hosts = (HOST,)  # its service is back
    stage.ask()
    assert stage.certificate().version == 1, "a new one: nothing leaves its last state"
    stage.until(lambda: HOST in stage.ask().certificates, MINUTE)


def test_a_service_that_comes_back_finds_its_certificate(stage: Stage) -> None:
    certified(stage)
    stage.hosts = ()
    for _ in range(70):  # its time to be renewed passes
        stage.after(DAY)
    assert stage.authority.issued == 1
    stage.hosts = (HOST,)
    assert HOST in stage.ask().certificates  # at once,
    stage.until(lambda: stage.authority.issued == 2, MINUTE)  # and it is renewed


def test_what_is_used_is_written_once_a_day(stage: Stage) -> None:
    certified(stage)
    version = stage.certificate().version
    for _ in range(100):
        stage.ask()
    assert stage.certificate().version == version
    stage.place.at += CHECK_ISSUED_EVERY
    stage.ask()
    stage.ask()
    assert stage.certificate().version == version + 1
    assert CHECK_ISSUED_EVERY < UNUSED


def test_nothing_is_kept_of_a_gateway_that_is_deleted(stage: Stage) -> None:
    certified(stage)
    stage.end()
    stage.place.at += CHECK_ISSUED_EVERY
    stage.settle()
    dropped = stage.certificate()
    assert dropped.dropped and (dropped.pair, dropped.order, dropped.due_at) == (None, None, None)
    record = stage.place.store.get(keys.certificate(dropped.id))
    assert record is not None and record.expires_at == (stage.place.at // SECOND) + 86_400
    assert certificates.of_gateway(stage.place.plane, stage.gateway.id) == []
    assert (
        certificates.gateway_certificates(stage.place.plane, stage.place.again(stage.gateway), [HOST]).certificates
        == {}
    )


@pytest.mark.parametrize("at", range(1, 6))
def test_a_gateway_that_is_deleted_meanwhile_leaves_no_order(stage: Stage, at: int) -> None:
    stage.ask()
    for _ in range(200):
        if len(stage.authority.calls) >= at:
            break
        stage.after(SECOND)
    stage.end()
    for _ in range(3):
        stage.place.at += CHECK_ISSUED_EVERY
        stage.settle()
    assert stage.certificate().dropped and stage.certificate().order is None


def test_private_keys_are_in_no_record_event_or_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stage.reachable = False
    stage.ask()
    stage.settle()
    stage.report(stage.ask().unconfirmed)
    stage.reachable = True
    stage.until(lambda: has_one(stage), MINUTE)
    account = nouns.find(stage.place.store, Registration, keys.registration(b.PROJECT, stage.authority.directory))
    assert account is not None and account.key.startswith("v1.") and account.url
    answer = stage.ask()
    assert "PRIVATE KEY" in answer.certificates[HOST]["key"] and "PRIVATE KEY" not in repr(answer)
    for text in (stage.all_of_it(), *stage.messages(), caplog.text):
        assert "PRIVATE KEY" not in text
    assert len(stage.all_of_it()) > 1000


def test_a_certificates_key_opens_for_no_other(stage: Stage) -> None:
    certified(stage)
    pair = stage.certificate().pair
    assert pair is not None
    with pytest.raises(Exception, match="doesn't open"):
        stage.place.plane.seal.open(pair.key, context="certificate/another")


def test_gateways_that_want_none_get_none(stage: Stage) -> None:
    stage.place.save(stage.place.again(stage.gateway).with_(configuration='{"type": "gateway", "certificate": null}'))
    assert stage.ask().certificates == {} and stage.found() is None


def test_failures_never_wait_longer_than_seldom(stage: Stage) -> None:
    stage.ask()
    stage.settle()
    stage.place.save(stage.certificate().with_(failures=50))
    stage.authority.orders.clear()
    stage.ask()
    stage.ask()
    stage.settle()
    waits = stage.certificate()
    assert waits.status is CertificateStatus.waiting and waits.due_at is not None
    assert waits.due_at - stage.place.at <= ORDER_SELDOM
    assert TO_CALL < ORDER_RETRY


def test_what_cannot_be_is_a_bug(stage: Stage) -> None:
    stage.ask()
    found = CertificateSnapshot(stage.place.at, stage.certificate(), stage.gateway)
    with pytest.raises(Bug, match="no outcome of an effect on a certificate"):
        conclude_certificate(found, Outcome(found.unit))
    with pytest.raises(Bug, match="is issued, and isn't there"):
        decide_certificate(replace(found, certificate=found.certificate.with_(status=issued, pair=None)))

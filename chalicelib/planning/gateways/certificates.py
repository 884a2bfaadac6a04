"""A certificate's decisions: when to place an order, when to request validation, and when to try again.

Each effect is one step at the authority that may be repeated, and what it needs is committed first: the order and the
future certificate's key, before validation is requested and before the authority signs. So a process that dies between
two steps is followed by one that continues with the same order.

Authorities count failures (Let's Encrypt allows five an hour for a host), so each is followed by a longer pause. If the
authority can't be reached, the order is kept. A certificate is renewed once two thirds of its life are over, if its
gateway still has the host. Otherwise it stays until it expires, in case the service comes back.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from chalicelib.domain.certificates import Certificate, CertificateOrder, CertificatePair, CertificateStatus
from chalicelib.domain.events import EventType
from chalicelib.domain.instants import HOUR, SECOND, Micros, clock
from chalicelib.errors import Bug
from chalicelib.machines.certificate import (
    CERTIFICATE,
    CHECK_ISSUED_EVERY,
    CHECK_UNANSWERED_EVERY,
    ORDER_RETRY,
    ORDER_SELDOM,
    POLL_EVERY,
    POLL_SELDOM,
    TO_ANSWER,
    TO_CALL,
    TO_VALIDATE,
    UNUSED,
)
from chalicelib.planning.gateways.snapshots import CertificateSnapshot
from chalicelib.planning.kernel.failures import meaning
from chalicelib.planning.kernel.plan import Effect, Failed, Outcome, Plan
from chalicelib.planning.kernel.transitions import Draft

AUTHORITY = "acme"  # where the effects go
LONGEST = 600  # characters of an authority's message

_WITHOUT_ORDER: dict[str, object] = {  # fields of a certificate whose order has ended
    "order": None,
    "heard": False,
    "heard_by": (),
    "answered_at": None,
    "looks": 0,
    "act_until": None,
}


@dataclass(frozen=True)
class PlaceOrder(Effect):
    """Order a certificate for the host, with a new key."""


@dataclass(frozen=True)
class AnswerChallenge(Effect):
    """Request validation: the gateway answers the challenge at the host."""


@dataclass(frozen=True)
class LookAtOrder(Effect):
    """Poll the order's status. Functions send the class's name in messages, so it stays as it is."""


@dataclass(frozen=True)
class CollectCertificate(Effect):
    """Have the authority sign, and fetch the certificate."""


@dataclass(frozen=True)
class OrderPlaced(Outcome):
    act_until: Micros
    order: CertificateOrder


@dataclass(frozen=True)
class OrderSeen(Outcome):
    """The order's status, as RFC 8555 defines it, with an `error` if it is invalid."""

    act_until: Micros
    state: str
    error: str = ""
    again: float | None = None  # seconds until the next poll, if the authority asks for a pause


@dataclass(frozen=True)
class CertificateCollected(Outcome):
    act_until: Micros
    pair: CertificatePair


@dataclass(frozen=True)
class NotCertified(Failed):
    """The authority refused a call, or couldn't be reached."""

    act_until: Micros = 0


def renewal(pair: CertificatePair) -> Micros:
    """When a certificate is due for renewal: after two thirds of its life."""
    return pair.since + (pair.until - pair.since) * 2 // 3


def challenge_answered(certificate: Certificate, now: Micros, by: int, running: Set[int]) -> Plan:
    """Record that a replica of its gateway answers the challenge. The authority may ask any of them, so all running
    replicas must."""
    draft = Draft(now)
    if certificate.status is not CertificateStatus.ordered or certificate.heard:
        return draft.plan()
    answering = {*certificate.heard_by, by}
    if running <= answering:
        draft.save(certificate.with_(heard=True, due_at=now))
        draft.wake(certificate.unit)
    elif by not in certificate.heard_by:
        draft.save(certificate.with_(heard_by=tuple(sorted(answering))))
    return draft.plan()


def record_use(certificate: Certificate, now: Micros) -> Plan:
    """Record, at most daily, that its gateway has requested it. One that wasn't renewed becomes due."""
    draft = Draft(now)
    if not certificate.dropped and certificate.used_at <= now - CHECK_ISSUED_EVERY:
        draft.save(certificate.with_(used_at=now, due_at=min(now, certificate.due_at or now)))
        draft.wake(certificate.unit)
    return draft.plan()


def retry_now(certificate: Certificate, now: Micros) -> Plan:
    """Try again at once, because somebody has fixed the cause: place a failed order anew, or call an authority that
    couldn't be reached. The count of failures stays, and a pause that the authority itself asked for is kept."""
    draft = Draft(now)
    failed = bool(certificate.message) and certificate.act_until is None
    at = max(now, certificate.not_before or now)
    if failed and certificate.due_at is not None and certificate.due_at > at:
        draft.save(certificate.with_(due_at=at))
        draft.wake(certificate.unit)
    return draft.plan()


def decide_certificate(snapshot: CertificateSnapshot) -> Plan:
    """The next step of one certificate."""
    this = _CertificatePass(snapshot)
    status = this.certificate.status
    if status is CertificateStatus.dropped:
        return this.plan()
    if snapshot.gateway is None or snapshot.gateway.ending:
        this.drop("its gateway is gone")
    elif status is CertificateStatus.issued:
        this.issued()
    elif this.call_in_flight():
        this.recheck(this.certificate.act_until or this.now)
    elif status is CertificateStatus.waiting:
        this.waiting()
    elif status is CertificateStatus.ordered:
        this.ordered()
    else:
        this.await_authority()
    return this.plan()


def conclude_certificate(snapshot: CertificateSnapshot, outcome: Outcome) -> Plan:
    """Apply the outcome of a call to the authority. One that comes too late has no consequences."""
    this = _CertificateOutcome(snapshot)
    if not isinstance(outcome, OrderPlaced | OrderSeen | CertificateCollected | NotCertified):
        raise Bug(f"{outcome} is no outcome of an effect on a certificate")
    if this.certificate.act_until != outcome.act_until or this.certificate.dropped:
        return this.plan()
    if isinstance(outcome, OrderPlaced):
        this.placed(outcome.order)
    elif isinstance(outcome, OrderSeen):
        this.seen(outcome)
    elif isinstance(outcome, CertificateCollected):
        this.collected(outcome.pair)
    else:
        this.failed(outcome)
    this.draft.wake(this.certificate.unit)  # which is due later, when the call would have been repeated
    return this.plan()


class _CertificatePass:
    """One pass over a certificate: the noun so far, and the draft of the step."""

    def __init__(self, snapshot: CertificateSnapshot) -> None:
        self.now, self.certificate, self.draft = snapshot.now, snapshot.certificate, Draft(snapshot.now)

    def plan(self) -> Plan:
        return Plan(() if self.draft.empty else (self.draft.step(),), next_wake=self.certificate.due_at)

    def update(self, **changes: object) -> None:
        self.certificate = self.certificate.with_(**changes)
        self.draft.save(self.certificate)

    def move(self, event: str, **changes: object) -> None:
        note = str(changes.get("message") or "")
        self.certificate = self.draft.move(CERTIFICATE, self.certificate, event, note=note, **changes)

    def recheck(self, due_at: Micros) -> None:
        """Move the due time, if the current one has passed or is too late."""
        current = self.certificate.due_at
        if current is None or current <= self.now or current > due_at:
            self.update(due_at=due_at)

    def act(self, effect: type[Effect]) -> None:
        """Make a call once this is committed. Without an outcome, it is repeated after `TO_CALL`."""
        until = self.now + TO_CALL
        self.update(act_until=until, due_at=until)
        self.draft.act(effect(self.certificate.unit, AUTHORITY, until, self.certificate.project_id))

    def call_in_flight(self) -> bool:
        return self.certificate.act_until is not None and self.certificate.act_until > self.now

    def due(self) -> bool:
        return self.certificate.due_at is None or self.certificate.due_at <= self.now

    def drop(self, why: str) -> None:
        """End the certificate; its private keys are erased."""
        self.move("drop", message=why, pair=None, dropped_at=self.now, due_at=None, **_WITHOUT_ORDER)

    def in_use(self) -> bool:
        return self.certificate.used_at > self.now - UNUSED

    def waiting(self) -> None:
        if not self.in_use():
            if self.certificate.serves(self.now) and self.certificate.pair is not None:
                self.recheck(self.certificate.pair.until)
            else:
                self.drop("its host isn't used any more")
        elif self.due():
            self.act(PlaceOrder)

    def ordered(self) -> None:
        order = self.certificate.order
        if self.certificate.heard or order is None or not order.token:
            if self.due():
                self.act(AnswerChallenge)
        elif self.now >= order.placed_at + TO_ANSWER:
            self.refuse("the gateway didn't take the answer to the authority's challenge; is its machine running?")
        else:
            self.recheck(self.now + CHECK_UNANSWERED_EVERY)

    def await_authority(self) -> None:
        """Poll the authority while it validates or signs, or give the order up."""
        if self.now >= (self.certificate.answered_at or self.now) + TO_VALIDATE:
            self.refuse("the authority has neither issued nor refused it")
        elif self.due():
            validating = self.certificate.status is CertificateStatus.validating
            self.act(LookAtOrder if validating else CollectCertificate)

    def issued(self) -> None:
        pair = self.certificate.pair
        if pair is None:
            raise Bug(f"the certificate of {self.certificate.name} is issued, and isn't there")
        if self.in_use() and self.now >= renewal(pair):
            self.move("renew", failures=0, due_at=self.now)
            self.waiting()
        elif self.now >= pair.until:
            self.drop("it has expired, and its host isn't used any more")
        else:
            self.recheck(min(self.now + CHECK_ISSUED_EVERY, renewal(pair) if self.now < renewal(pair) else pair.until))

    def refuse(self, why: str, least: Micros = 0) -> None:
        """Give the order up; place another after a pause."""
        failures = self.certificate.failures + 1
        at = self.now + max(least, min(ORDER_RETRY << min(failures - 1, 10), ORDER_SELDOM))
        message = f"{why[:LONGEST]} The next attempt is at {clock(at)}."
        if self.certificate.status is CertificateStatus.waiting:
            self.update(failures=failures, message=message, due_at=at, **_WITHOUT_ORDER)
            self.draft.record(EventType.failed, self.certificate, reason="not certified", detail=message)
        else:
            self.move("refused", failures=failures, message=message, due_at=at, **_WITHOUT_ORDER)


class _CertificateOutcome(_CertificatePass):
    def placed(self, order: CertificateOrder) -> None:
        if self.certificate.status is CertificateStatus.waiting:
            self.move("placed", message="", order=order, looks=0, act_until=None, due_at=self.now)
            self.ordered()

    def seen(self, seen: OrderSeen) -> None:
        if seen.state == "invalid":
            self.refuse(_refused(self.certificate.name, seen.error))
            return
        good = seen.state in ("ready", "valid")
        if self.certificate.status is CertificateStatus.ordered:
            self.move("ready" if good else "answered", message="", looks=0, answered_at=self.now)
        elif self.certificate.status is CertificateStatus.validating and good:
            self.move("ready", message="", looks=0)
        elif seen.state != "valid":
            good = False
        if good:
            self.act(CollectCertificate)
        else:
            self._poll_later(seen)

    def _poll_later(self, seen: OrderSeen) -> None:
        looks = self.certificate.looks
        pause = min(POLL_EVERY * (1 + looks // 4), POLL_SELDOM)
        requested = 0 if seen.again is None else round(seen.again * SECOND)
        self.update(looks=looks + 1, act_until=None, due_at=self.now + max(pause, min(requested, TO_VALIDATE)))

    def collected(self, pair: CertificatePair) -> None:
        if self.certificate.status is CertificateStatus.finalizing:
            self.move("issued", message="", pair=pair, failures=0, due_at=self.now, **_WITHOUT_ORDER)
            self.issued()

    def failed(self, failed: NotCertified) -> None:
        """Repeat the call after a pause, unless the error condemns the order itself."""
        if failed.retry_after is not None:
            self.update(not_before=self.now + round(failed.retry_after * SECOND))
        means = meaning(failed.error)
        least = round((means.retry_after if failed.retry_after is None else failed.retry_after) * SECOND)
        if failed.error == "Gone" or not means.repeat:
            self.refuse(failed.message, least)
            return
        looks = self.certificate.looks + 1
        at = self.now + max(least, min(POLL_EVERY << min(looks, 12), HOUR))
        message = f"{failed.message[:LONGEST]} The next attempt is at {clock(at)}."
        if self.certificate.looks & looks == 0:  # at the first, and at each doubling
            self.draft.record(EventType.failed, self.certificate, reason=failed.error, detail=message)
        self.update(looks=looks, message=message, act_until=None, due_at=at)


def _refused(host: str, error: str) -> str:
    return (
        f"The authority didn't find the answer at http://{host}/.well-known/acme-challenge/. {error} "
        f"See that {host} has a DNS record with the gateway's address, and that its port 80 can be reached."
    )

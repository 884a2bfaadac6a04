"""Certificates: each look at one, each answer of the authority, and what its gateway says meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.certificates import (
    Certificate,
    CertificateOrder,
    CertificatePair,
    CertificateStatus,
    certificate_id,
)
from chalicelib.domain.gateways import GatewayStatus
from chalicelib.domain.instants import DAY, HOUR, MINUTE
from chalicelib.machines.certificate import CHECK_ISSUED_EVERY, TO_ANSWER, TO_CALL, TO_VALIDATE, UNUSED
from chalicelib.planning.gateways.certificates import (
    CertificateCollected,
    NotCertified,
    OrderPlaced,
    OrderSeen,
    challenge_answered,
    conclude_certificate,
    decide_certificate,
    record_use,
    retry_now,
)
from chalicelib.planning.gateways.snapshots import CertificateSnapshot
from chalicelib.planning.kernel.plan import Plan
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b
from tests.world.gateways import gateway

AT = "https://ca.test/directory"
ORDER = CertificateOrder(
    directory=AT,
    url=f"{AT}/order/1",
    challenge=f"{AT}/challenge/1",
    token="token",
    answer="token.thumb",
    key="sealed",
    placed_at=BEFORE,
)
PROVED = ORDER.with_(challenge="", token="", answer="")  # nothing is to be shown at the host
PAIR = CertificatePair(chain="CHAIN", key="SEALED", since=NOW - 59 * DAY, until=NOW + 31 * DAY)
TO_RENEW = PAIR.with_(since=NOW - 60 * DAY, until=NOW + 30 * DAY)
OVER = PAIR.with_(since=NOW - 90 * DAY, until=NOW)
ACT_UNTIL = NOW + TO_CALL


def certificate(status: str, **fields: Any) -> Certificate:
    door = gateway()
    known: dict[str, Any] = {"used_at": BEFORE, "created_at": BEFORE, "last_processed_at": BEFORE, "due_at": NOW}
    if status in ("ordered", "validating", "finalizing"):
        known["order"] = ORDER
    if status in ("validating", "finalizing"):
        known |= {"heard": True, "answered_at": BEFORE + MINUTE}
    return Certificate(
        id=certificate_id(door.id, "chat.example.com"),
        project_id=b.PROJECT,
        gateway_id=door.id,
        gateway_name=door.name,
        name="chat.example.com",
        status=CertificateStatus(status),
        **{**known, **fields},
    )


def decided(status: str, *, door: GatewayStatus | None = GatewayStatus.running, **fields: Any) -> Decided:
    of = None if door is None else gateway(status=door)
    snapshot = CertificateSnapshot(NOW, certificate(status, **fields), of)
    return snapshot, decide_certificate(snapshot)


def concluded(
    status: str, kind: type[Any], act_until: int = ACT_UNTIL, /, *, given: Any = (), **fields: Any
) -> Decided:
    """While the call for which this is the outcome is under way."""
    of = certificate(status, **{"act_until": ACT_UNTIL, "due_at": ACT_UNTIL, **fields})
    snapshot = CertificateSnapshot(NOW, of, gateway())
    return snapshot, conclude_certificate(snapshot, kind(of.unit, act_until=act_until, **dict(given)))


def changed(decide: Callable[..., Plan], status: str, *more: Any, **fields: Any) -> Decided:
    snapshot = CertificateSnapshot(NOW, certificate(status, **fields), gateway())
    return snapshot, decide(snapshot.certificate, NOW, *more)


situation(
    "certificate: waiting, and not due",
    decided,
    "waiting",
    heard=True,
    due_at=NOW + 1,
    comes_to="again in 0.000001 s",
)
situation(
    "certificate: waiting, and a call is under way",
    decided,
    "waiting",
    act_until=NOW + 1,
    comes_to="again in 0.000001 s",
)
situation(
    "certificate: waiting, and a call has had its time",
    decided,
    "waiting",
    heard=True,
    act_until=NOW,
    comes_to="chat.example.com: act_until; PlaceOrder; again in 120 s",
)
situation(
    "certificate: ordered, and not due",
    decided,
    "ordered",
    heard=True,
    due_at=NOW + 1,
    comes_to="again in 0.000001 s",
)
situation(
    "certificate: validating, and due",
    decided,
    "validating",
    heard=True,
    comes_to="chat.example.com: act_until; LookAtOrder; again in 120 s",
)
situation(
    "certificate: validating, and not due",
    decided,
    "validating",
    heard=True,
    due_at=NOW + 1,
    comes_to="again in 0.000001 s",
)
situation("certificate: dropped", decided, "dropped", door=None, due_at=None, dropped_at=BEFORE, comes_to="nothing")
situation(
    "certificate: its gateway ends",
    decided,
    "issued",
    door=GatewayStatus.deleting,
    pair=PAIR,
    comes_to="chat.example.com issued → dropped",
)

NOT_USED: dict[str, Any] = {"used_at": NOW - UNUSED}
situation(
    "certificate: its host isn't used", decided, "waiting", **NOT_USED, comes_to="chat.example.com waiting → dropped"
)
situation(
    "certificate: its host isn't used, and it serves",
    decided,
    "waiting",
    pair=PAIR,
    **NOT_USED,
    comes_to="again in 2678400 s",
)

situation(
    "certificate: its gateway may hear of it until then",
    decided,
    "ordered",
    due_at=NOW + HOUR,
    comes_to="again in 3600 s",
)
LATE = ORDER.with_(placed_at=NOW - TO_ANSWER)
ANSWERED: dict[str, Any] = {"heard_by": (0,), "answered_at": BEFORE, "looks": 3}
situation(
    "certificate: its gateway hasn't heard of it in time",
    decided,
    "ordered",
    order=LATE,
    **ANSWERED,
    comes_to="chat.example.com ordered → waiting; again in 300 s",
)
situation(
    "certificate: validating, and the authority has had its time",
    decided,
    "validating",
    answered_at=NOW - TO_VALIDATE,
    comes_to="chat.example.com validating → waiting; again in 300 s",
)

situation("certificate: to be renewed", decided, "issued", pair=TO_RENEW, failures=2, due_at=NOW + 1, act_until=NOW)
situation(
    "certificate: expired", decided, "issued", pair=OVER, **NOT_USED, comes_to="chat.example.com issued → dropped"
)

PLACED, SEEN, MADE, FAILED = OrderPlaced, OrderSeen, CertificateCollected, NotCertified
situation("certificate: the order needs nothing shown", concluded, "waiting", PLACED, given={"order": PROVED})
situation(
    "certificate: the order is placed again",
    concluded,
    "ordered",
    PLACED,
    given={"order": ORDER},
    comes_to="again in 120 s",
)
situation(
    "certificate: ordered, and the authority says ready",
    concluded,
    "ordered",
    SEEN,
    given={"state": "ready", "error": "nobody there."},
    looks=4,
    message="old",
)
situation(
    "certificate: validating, and the authority says ready",
    concluded,
    "validating",
    SEEN,
    given={"state": "ready", "error": "nobody there."},
    looks=4,
    message="old",
)
situation(
    "certificate: finalizing, and the authority says valid",
    concluded,
    "finalizing",
    SEEN,
    given={"state": "valid", "error": "nobody there."},
    looks=4,
    message="old",
    comes_to="CollectCertificate; again in 120 s",
)
situation(
    "certificate: ordered, and the authority says invalid",
    concluded,
    "ordered",
    SEEN,
    given={"state": "invalid", "error": "nobody there."},
    looks=4,
    message="old",
    comes_to="chat.example.com ordered → waiting; again in 300 s",
)
situation(
    "certificate: the authority has been looking for long",
    concluded,
    "validating",
    SEEN,
    given={"state": "pending"},
    looks=99,
    comes_to="chat.example.com: looks, act_until; again in 60 s",
)
situation(
    "certificate: made",
    concluded,
    "finalizing",
    MADE,
    given={"pair": PAIR},
    message="old",
    failures=2,
    looks=4,
    comes_to="chat.example.com finalizing → issued; again in 86400 s",
)
situation(
    "certificate: made when nobody waits for it",
    concluded,
    "waiting",
    MADE,
    given={"pair": PAIR},
    comes_to="again in 120 s",
)
situation(
    "certificate: what comes too late",
    concluded,
    "waiting",
    PLACED,
    1,
    given={"order": ORDER},
    comes_to="again in 120 s",
)
situation(
    "certificate: Transient, and 7.0 to try again",
    concluded,
    "validating",
    FAILED,
    given={"error": "Transient", "message": "x" * 700, "retry_after": 7.0},
    looks=1,
    failures=1,
)
AWAY = {"error": "Transient", "message": "It doesn't answer.", "retry_after": None}
situation(
    "certificate: no answer, 2 times before",
    concluded,
    "finalizing",
    FAILED,
    given=AWAY,
    looks=2,
    comes_to="chat.example.com: message, looks, act_until; again in 24 s",
)
NO = {"error": "Unfit", "message": "It certifies no such name.", "retry_after": None}
situation(
    "certificate: refused, 0 times before",
    concluded,
    "waiting",
    FAILED,
    given=NO,
    failures=0,
    comes_to="chat.example.com: message, failures, act_until; again in 300 s",
)

BOTH = frozenset({0, 1})
situation(
    "certificate: one of two replicas answers",
    changed,
    challenge_answered,
    "ordered",
    1,
    BOTH,
    comes_to="chat.example.com: heard_by",
)
situation(
    "certificate: the same replica answers again",
    changed,
    challenge_answered,
    "ordered",
    1,
    BOTH,
    heard_by=(1,),
    comes_to="nothing",
)
situation(
    "certificate: both replicas answer",
    changed,
    challenge_answered,
    "ordered",
    0,
    BOTH,
    heard_by=(1,),
    due_at=NOW + HOUR,
    comes_to="chat.example.com: heard",
)
situation(
    "certificate: a replica answers when all have",
    changed,
    challenge_answered,
    "ordered",
    0,
    frozenset({0}),
    heard=True,
    comes_to="nothing",
)
IN_A_DAY: dict[str, Any] = {"due_at": NOW + DAY}
situation(
    "certificate: used today",
    changed,
    record_use,
    "issued",
    pair=PAIR,
    used_at=NOW - CHECK_ISSUED_EVERY + 1,
    **IN_A_DAY,
    comes_to="nothing",
)
situation(
    "certificate: used, and overdue",
    changed,
    record_use,
    "issued",
    pair=PAIR,
    used_at=0,
    due_at=BEFORE,
    comes_to="chat.example.com: used_at",
)
WRONG: dict[str, Any] = {"message": "wrong", "due_at": NOW + HOUR}
situation("certificate: to be tried at once", changed, retry_now, "waiting", **WRONG, comes_to="nothing")
situation(
    "certificate: to be tried again now anyway",
    changed,
    retry_now,
    "waiting",
    **{**WRONG, "due_at": NOW},
    comes_to="nothing",
)

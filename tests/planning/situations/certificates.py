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
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND
from chalicelib.machines.certificate import LOOK_DAILY, TO_CALL, TO_HEAR, TO_VALIDATE, UNUSED
from chalicelib.planning.gateways.certificates import (
    CertificateMade,
    NotCertified,
    OrderPlaced,
    OrderSeen,
    asked_again,
    conclude_certificate,
    decide_certificate,
    heard,
    used,
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
UNDER_WAY = NOW + TO_CALL


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


def looked_at(status: str, *, door: GatewayStatus | None = GatewayStatus.running, **fields: Any) -> Decided:
    of = None if door is None else gateway(status=door)
    snapshot = CertificateSnapshot(NOW, certificate(status, **fields), of)
    return snapshot, decide_certificate(snapshot)


def concluded(status: str, kind: type[Any], act_until: int = UNDER_WAY, /, *, said: Any = (), **fields: Any) -> Decided:
    """While the call for which this is the outcome is under way."""
    of = certificate(status, **{"act_until": UNDER_WAY, "due_at": UNDER_WAY, **fields})
    snapshot = CertificateSnapshot(NOW, of, gateway())
    return snapshot, conclude_certificate(snapshot, kind(of.unit, act_until=act_until, **dict(said)))


def told(decide: Callable[..., Plan], status: str, *more: Any, **fields: Any) -> Decided:
    snapshot = CertificateSnapshot(NOW, certificate(status, **fields), gateway())
    return snapshot, decide(snapshot.certificate, NOW, *more)


OPEN = ("waiting", "ordered", "validating", "finalizing")
FOUND: dict[str, Any] = {"order": PROVED}  # for which the authority wants to see nothing

for status in OPEN:
    situation(f"certificate: {status}, and due", looked_at, status, heard=True)
    situation(f"certificate: {status}, and not due", looked_at, status, heard=True, due_at=NOW + 1)
    situation(f"certificate: {status}, for the first time", looked_at, status, heard=True, due_at=None)
    situation(f"certificate: {status}, and a call is under way", looked_at, status, act_until=NOW + 1)
    situation(f"certificate: {status}, and a call has had its time", looked_at, status, heard=True, act_until=NOW)
    situation(f"certificate: {status}, and its gateway is gone", looked_at, status, door=None, heard_by=(1,), looks=3)
situation("certificate: dropped", looked_at, "dropped", door=None, due_at=None, dropped_at=BEFORE)
situation("certificate: its gateway ends", looked_at, "issued", door=GatewayStatus.deleting, pair=PAIR)

NOT_USED: dict[str, Any] = {"used_at": NOW - UNUSED}
situation("certificate: its host isn't used", looked_at, "waiting", **NOT_USED)
situation("certificate: its host is used", looked_at, "waiting", used_at=NOW - UNUSED + 1)
situation("certificate: its host isn't used, and it serves", looked_at, "waiting", pair=PAIR, **NOT_USED)
situation("certificate: its host isn't used, and it served", looked_at, "waiting", pair=OVER, **NOT_USED)

situation("certificate: its gateway hasn't heard of it", looked_at, "ordered")
situation("certificate: its gateway may hear of it until then", looked_at, "ordered", due_at=NOW + HOUR)
situation("certificate: its gateway is looked at before it hears of it", looked_at, "ordered", due_at=NOW + HOUR + 1)
LATE = ORDER.with_(placed_at=NOW - TO_HEAR)
WHOLE: dict[str, Any] = {"heard_by": (0,), "answered_at": BEFORE, "looks": 3}
situation("certificate: its gateway hasn't heard of it in time", looked_at, "ordered", order=LATE, **WHOLE)
situation("certificate: nothing is to be shown for it", looked_at, "ordered", **FOUND)
situation("certificate: ordered without an order", looked_at, "ordered", order=None)
for state in ("validating", "finalizing"):
    for name, at in (("has its last moment", NOW - TO_VALIDATE + 1), ("has had its time", NOW - TO_VALIDATE)):
        situation(f"certificate: {state}, and the authority {name}", looked_at, state, answered_at=at)
    situation(f"certificate: {state} since now", looked_at, state, answered_at=None)

situation("certificate: issued", looked_at, "issued", pair=PAIR)
situation("certificate: issued, and looked at in time", looked_at, "issued", pair=PAIR, due_at=NOW + HOUR)
situation("certificate: issued for good", looked_at, "issued", pair=PAIR.with_(until=NOW + 900 * DAY))
situation("certificate: to be renewed", looked_at, "issued", pair=TO_RENEW, failures=2, due_at=NOW + 1, act_until=NOW)
situation("certificate: to be renewed, but not used", looked_at, "issued", pair=TO_RENEW, **NOT_USED)
situation("certificate: expired", looked_at, "issued", pair=OVER, **NOT_USED)

PLACED, SEEN, MADE, FAILED = OrderPlaced, OrderSeen, CertificateMade, NotCertified
situation(
    "certificate: the order is placed", concluded, "waiting", PLACED, said={"order": ORDER}, message="old", looks=2
)
situation("certificate: the order needs nothing shown", concluded, "waiting", PLACED, said={"order": PROVED})
situation("certificate: the order is placed again", concluded, "ordered", PLACED, said={"order": ORDER})
for state in ("pending", "processing", "ready", "valid", "invalid"):
    for status in ("ordered", "validating", "finalizing"):
        name = f"certificate: {status}, and the authority says {state}"
        situation(
            name, concluded, status, SEEN, said={"state": state, "error": "nobody there."}, looks=4, message="old"
        )
for again in (1.5, 90.0, 7200.0):
    name = f"certificate: the authority says to look again in {again} s"
    situation(name, concluded, "validating", SEEN, said={"state": "processing", "again": again}, looks=1)
situation(
    "certificate: the authority has been looking for long",
    concluded,
    "validating",
    SEEN,
    said={"state": "pending"},
    looks=99,
)
situation("certificate: made", concluded, "finalizing", MADE, said={"pair": PAIR}, message="old", failures=2, looks=4)
situation("certificate: its successor is made", concluded, "finalizing", MADE, said={"pair": PAIR}, pair=OVER, **WHOLE)
situation("certificate: made when nobody waits for it", concluded, "waiting", MADE, said={"pair": PAIR})
situation("certificate: what comes too late", concluded, "waiting", PLACED, 1, said={"order": ORDER})
situation("certificate: what comes after its end", concluded, "dropped", PLACED, said={"order": ORDER})
for error in ("Transient", "Throttled", "Gone", "Unfit", "SomethingNew"):
    for retry_after in (None, 7.0, 1800.0):
        said = {"error": error, "message": "x" * 700, "retry_after": retry_after}
        name = f"certificate: {error}, and {'nothing about when' if retry_after is None else retry_after} to try again"
        situation(name, concluded, "validating", FAILED, said=said, looks=1, failures=1)
AWAY = {"error": "Transient", "message": "It doesn't answer.", "retry_after": None}
for looks in (0, 2, 12, 60):
    situation(f"certificate: no answer, {looks} times before", concluded, "finalizing", FAILED, said=AWAY, looks=looks)
NO = {"error": "Unfit", "message": "It certifies no such name.", "retry_after": None}
for failures in (0, 1, 6, 7, 60):
    situation(
        f"certificate: refused, {failures} times before", concluded, "waiting", FAILED, said=NO, failures=failures
    )

BOTH = frozenset({0, 1})
situation("certificate: one of two replicas answers", told, heard, "ordered", 1, BOTH)
situation("certificate: the same replica answers again", told, heard, "ordered", 1, BOTH, heard_by=(1,))
situation("certificate: both replicas answer", told, heard, "ordered", 0, BOTH, heard_by=(1,), due_at=NOW + HOUR)
situation("certificate: a replica answers that isn't running", told, heard, "ordered", 7, BOTH)
situation("certificate: a replica answers when nobody asks", told, heard, "waiting", 0, frozenset({0}))
situation("certificate: a replica answers when all have", told, heard, "ordered", 0, frozenset({0}), heard=True)
IN_A_DAY: dict[str, Any] = {"due_at": NOW + DAY}
situation("certificate: used today", told, used, "issued", pair=PAIR, used_at=NOW - LOOK_DAILY + 1, **IN_A_DAY)
situation("certificate: used since yesterday", told, used, "issued", pair=PAIR, used_at=NOW - LOOK_DAILY, **IN_A_DAY)
situation("certificate: used, and overdue", told, used, "issued", pair=PAIR, used_at=0, due_at=BEFORE)
situation("certificate: used, and never looked at", told, used, "waiting", used_at=0, due_at=None)
situation("certificate: used after its end", told, used, "dropped", used_at=0, due_at=None)
WRONG: dict[str, Any] = {"message": "wrong", "due_at": NOW + HOUR}
situation("certificate: to be tried at once", told, asked_again, "waiting", **WRONG)
situation(
    "certificate: to be tried when the authority allows it",
    told,
    asked_again,
    "waiting",
    not_before=NOW + MINUTE,
    **WRONG,
)
situation("certificate: the authority allowed it by now", told, asked_again, "waiting", not_before=BEFORE, **WRONG)
situation(
    "certificate: to be tried again when nothing failed", told, asked_again, "waiting", **{**WRONG, "message": ""}
)
situation("certificate: to be tried again while it is", told, asked_again, "waiting", act_until=NOW + SECOND, **WRONG)
situation("certificate: to be tried again now anyway", told, asked_again, "waiting", **{**WRONG, "due_at": NOW})

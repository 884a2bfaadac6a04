"""What came of an effect on a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.planning.kernel.plan import Outcome
from chalicelib.planning.kernel.purchases import Left, NotBought, NotDone, Seen
from chalicelib.planning.machines.outcomes import decide_outcome
from tests.planning.situations.kit import BEFORE, HAND, NOW, OPEN, Decided, situation
from tests.planning.situations.machines import instance_at


def outcome(make: Callable[[Instance, str], Outcome], /, **how: Any) -> Decided:
    snapshot = instance_at(**how)
    return snapshot, decide_outcome(snapshot, make(snapshot.instance, snapshot.unit))


def not_bought(error: str, retry_after: float | None = None) -> Callable[[Instance, str], Outcome]:
    return lambda one, unit: NotBought(unit, error, "x" * 600, retry_after, one.epoch, one.act_until or 0)


def seen(state: Any, **fields: Any) -> Callable[[Instance, str], Outcome]:
    return lambda one, unit: Seen(unit, one.epoch, state, **fields)


def left(going: str = "", began: int = NOW, open_until: int | None = None) -> Callable[[Instance, str], Outcome]:
    return lambda one, unit: Left(unit, one.epoch, began, open_until, going)


def not_done(error: str, message: str = "no", retry_after: float | None = None) -> Callable[[Instance, str], Outcome]:
    return lambda one, unit: NotDone(unit, error, message, retry_after, one.epoch)


FIRST: dict[str, Any] = {
    "status": "pending",
    "act_until": BEFORE + OPEN,
    "deadline": NOW + HOUR,
    "due_at": NOW + MINUTE,
}

situation("a purchase that is throttled", outcome, not_bought("Throttled"), **FIRST)
situation(
    "a purchase that is refused, for a job", outcome, not_bought("InsufficientCapacity"), job="provisioning", **FIRST
)
situation(
    "a purchase that is refused for an ending machine",
    outcome,
    not_bought("InsufficientCapacity"),
    **{**FIRST, "status": "terminating"},
    comes_to="cloud-0: act_until; again in 0 s",
)
situation(
    "a purchase without an answer for an ending machine",
    outcome,
    not_bought("Transient"),
    **{**FIRST, "status": "terminating"},
    comes_to="again in 60 s",
)

MADE: dict[str, Any] = {"status": "provisioning", "handles": HAND, "due_at": NOW + 9 * SECOND}
situation("a machine that is gone", outcome, seen("gone"), status="busy", job="running", handles=HAND)
situation(
    "a machine that isn't shown yet", outcome, seen("gone"), created_at=NOW - OPEN + 1, **MADE, comes_to="again in 9 s"
)

END: dict[str, Any] = {"status": "terminating", "handles": HAND, "due_at": NOW + HOUR}
situation(
    "nothing is left, and a job was there",
    outcome,
    left(),
    job="running",
    **END,
    comes_to="cloud-0 terminating → terminated",
)
situation("a look that failed", outcome, not_done("Transient"), **MADE, comes_to="cloud-0: message; again in 9 s")
situation("a look that failed until it is due", outcome, not_done("Transient", retry_after=9.0), **MADE)

situation(
    "a purchase ends with NotYet",
    outcome,
    not_bought("NotYet"),
    **FIRST,
    comes_to="cloud-0: message, act_until; again in 10 s",
)
situation("a request ends with Unfit", outcome, not_done("Unfit"), **END, comes_to="cloud-0: message; again in 3600 s")

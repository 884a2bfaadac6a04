"""What came of an effect on a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.planning.kernel.plan import Outcome
from chalicelib.planning.kernel.purchases import Bought, Left, NotBought, NotDone, Seen
from chalicelib.planning.machines.outcomes import decide_outcome
from tests.planning.situations.kit import BEFORE, HAND, NOW, OPEN, Decided, situation
from tests.planning.situations.machines import instance_at
from tests.world import nouns as b


def outcome(make: Callable[[Instance, str], Outcome], /, **how: Any) -> Decided:
    snapshot = instance_at(**how)
    return snapshot, decide_outcome(snapshot, make(snapshot.instance, snapshot.unit))


def bought(one: Instance, unit: str) -> Outcome:
    return Bought(unit, one.epoch, one.act_until or 0)


def not_bought(error: str, retry_after: float | None = None) -> Callable[[Instance, str], Outcome]:
    return lambda one, unit: NotBought(unit, error, "x" * 600, retry_after, one.epoch, one.act_until or 0)


def seen(state: Any, **rest: Any) -> Callable[[Instance, str], Outcome]:
    return lambda one, unit: Seen(unit, one.epoch, state, **rest)


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
AGAIN: dict[str, Any] = {**FIRST, "act_until": NOW + MINUTE}

situation("a purchase that was made", outcome, bought, message="old", **FIRST)
situation("a purchase that was made for an ending machine", outcome, bought, **{**FIRST, "status": "terminating"})
situation("a purchase of another time", outcome, lambda one, unit: Bought(unit, one.epoch, 1), **FIRST)
situation("an outcome of another epoch", outcome, lambda one, unit: Seen(unit, 7, "gone"), handles=HAND)
situation("a purchase that is throttled", outcome, not_bought("Throttled"), **FIRST)
situation("a purchase that is throttled for as long as it says", outcome, not_bought("Throttled", 90.0), **FIRST)
situation("a purchase without an answer", outcome, not_bought("Transient"), **FIRST)
situation(
    "a purchase without an answer and without time",
    outcome,
    not_bought("Transient"),
    **{**FIRST, "deadline": NOW + 5 * SECOND},
)
situation(
    "a purchase without an answer and without a deadline",
    outcome,
    not_bought("Gone", 0.1),
    **{**FIRST, "deadline": None},
)
situation(
    "a purchase that is refused, for the fleet", outcome, not_bought("InsufficientCapacity"), nodes="1..2", **FIRST
)
situation(
    "a purchase that is refused, for a job", outcome, not_bought("InsufficientCapacity"), job="provisioning", **FIRST
)
situation(
    "a purchase that is refused, for a job that ends", outcome, not_bought("QuotaExceeded"), job="terminating", **FIRST
)
situation("a repeated purchase that is refused", outcome, not_bought("InvalidCredentials"), **AGAIN)
situation(
    "a purchase that is refused after it made something",
    outcome,
    not_bought("MissingPermission"),
    handles=HAND,
    **FIRST,
)
situation(
    "a purchase that is refused for an ending machine",
    outcome,
    not_bought("InsufficientCapacity"),
    **{**FIRST, "status": "terminating"},
)
situation(
    "a purchase without an answer for an ending machine",
    outcome,
    not_bought("Transient"),
    **{**FIRST, "status": "terminating"},
)
situation(
    "a refusal that comes too late", outcome, not_bought("InsufficientCapacity"), **{**FIRST, "status": "provisioning"}
)

MADE: dict[str, Any] = {"status": "provisioning", "handles": HAND, "due_at": NOW + 9 * SECOND}
situation("a machine is seen with its names", outcome, seen("running", hostname="h", internal_ip="10.0.0.9"), **MADE)
situation("a machine is seen as it is known", outcome, seen("running", hostname="h"), hostname="h", **MADE)
situation("a machine that the cloud took back", outcome, seen("running", interrupted=True), **MADE)
situation(
    "a spot machine that the cloud took back",
    outcome,
    seen("gone", interrupted=True),
    offer=b.offer(has=b.resources(spot=True)),
    **MADE,
)
situation("a machine that is gone", outcome, seen("gone"), status="busy", job="running", handles=HAND)
situation("a machine that isn't shown yet", outcome, seen("gone"), created_at=NOW - OPEN + 1, **MADE)
situation(
    "a machine for which there was no room after all", outcome, seen("gone", refused="InsufficientCapacity"), **MADE
)
situation("a machine that may be shown by now", outcome, seen("gone"), created_at=NOW - OPEN, **MADE)
situation("a machine that was never made isn't gone", outcome, seen("gone"), status="provisioning")
situation("an ending machine that is gone", outcome, seen("gone"), status="terminating", handles=HAND)

END: dict[str, Any] = {"status": "terminating", "handles": HAND, "due_at": NOW + HOUR}
situation("nothing is left", outcome, left(), nodes="1..2", stop_attempts=1, **END)
situation("nothing is left, and a job was there", outcome, left(), job="running", **END)
situation("nothing is left, but a purchase was open", outcome, left(open_until=NOW + 1), **END)
situation("nothing is left, and the purchase had ended", outcome, left(open_until=NOW), **END)
situation("something is left at first", outcome, left("vm"), stop_attempts=4, **END)
situation("something is still left", outcome, left("vm"), stop_attempts=5, **END)
situation("nothing is left of one that doesn't end", outcome, left(), status="idle")
situation("a look that failed", outcome, not_done("Transient"), **MADE)
situation("a look that failed as before", outcome, not_done("MissingPermission"), message="no", **END)
situation("a request that is throttled", outcome, not_done("Throttled", retry_after=7.0), **END)
situation("a look that failed until it is due", outcome, not_done("Transient", retry_after=9.0), **MADE)
situation("a look that failed before its time", outcome, not_done("Transient", retry_after=20.0), **MADE)
situation("a request that failed of a terminated one", outcome, not_done("Transient"), status="terminated")

for error in (*MEANINGS, "SomethingNew"):
    situation(f"a purchase ends with {error}", outcome, not_bought(error), **FIRST)
    situation(f"a request ends with {error}", outcome, not_done(error), **END)

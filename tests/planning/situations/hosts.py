"""Hosts that people own: what a look at one, at its fleet and at the workflow that sets it up comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.instances import Instance, InstanceStatus, OnPrem
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.workflows import Workflow, WorkflowStatus
from chalicelib.planning.kernel.plan import Outcome
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.workflows import (
    Definition,
    StepDone,
    StepFailed,
    StepWaits,
    WorkflowSnapshot,
    decide_step,
    decide_workflow,
)
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST, workflow_of
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b

LAB = b.fleet("lab")
ADDED = OnPrem(hostname="h0", port=22, user="u")
JOINED = OnPrem(hostname="h0", port=0, joined=True)
YOUNG: dict[str, Any] = {"status": InstanceStatus.pending, "started_at": None, "idle_since": None, "due_at": NOW}
ENDING: dict[str, Any] = {
    "status": InstanceStatus.terminating,
    "reason": InstanceReason.terminated_by_user,
    "due_at": NOW,
}


def view(*there: Instance, hosts: Sequence[str] = ("h0",), **fields: Any) -> FleetView:
    spec = b.fleet_spec(ssh_config={"user": "u", "hosts": list(hosts)})
    return FleetView(LAB.with_(**{"last_processed_at": BEFORE, **fields}), spec, there)


def workflow(of: Instance, definition: Definition = ADD_HOST, status: str = "running", **fields: Any) -> Workflow:
    known = {"due_at": NOW + MINUTE, "act_until": NOW + MINUTE}
    return workflow_of(of, definition, BEFORE).with_(status=WorkflowStatus(status), **{**known, **fields})


def host(
    *workflows: tuple[Definition, str, dict[str, Any]], at: OnPrem = ADDED, heard: bool = False, **fields: Any
) -> Decided:
    one = b.host(0, LAB, host=at, **{"created_at": BEFORE, "last_processed_at": BEFORE, **fields})
    begun = tuple(workflow(one, definition, status, **more) for definition, status, more in workflows)
    presence = b.heard(one, last=NOW, facts=b.host_facts(addresses=("10.0.0.5",))) if heard else None
    snapshot = InstanceSnapshot(NOW, one, presence, view(one), (), None, begun)
    return snapshot, decide_instance(snapshot)


LATE: dict[str, Any] = {"reason": "timeout", "message": "report: it took too long"}
WRONG: dict[str, Any] = {"reason": "Unfit", "message": "it has no systemd"}
situation("a host is to be set up", host, **YOUNG)
situation("a host is being set up", host, (ADD_HOST, "running", {}), **YOUNG)
situation("a host that was set up reports", host, (ADD_HOST, "running", {}), heard=True, **YOUNG)
ELSEWHERE = ADDED.with_(internal_ip="10.0.0.9")
situation("a host reports that is elsewhere", host, at=ELSEWHERE, heard=True, **YOUNG)
situation("a host reports too late that is elsewhere", host, at=ELSEWHERE, heard=True, deadline=NOW, **YOUNG)
situation("a host was set up too late", host, (ADD_HOST, "undone", LATE), **YOUNG)
situation("a host couldn't be set up", host, (ADD_HOST, "undone", WRONG), **YOUNG)
situation("a host is to be cleared", host, (ADD_HOST, "done", {}), **ENDING)
situation("a host is to be cleared that is being set up", host, (ADD_HOST, "running", {}), **ENDING)
situation("a host is to be cleared whose setup is being undone", host, (ADD_HOST, "undoing", {}), **ENDING)
situation("a host needn't be cleared whose setup was undone", host, (ADD_HOST, "undone", WRONG), **ENDING)
situation(
    "a host that couldn't be set up stays listed",
    host,
    (ADD_HOST, "undone", WRONG),
    **{**ENDING, "reason": InstanceReason.error},
)
situation("a host is being cleared", host, (REMOVE_HOST, "running", {}), **ENDING)
situation("a host is cleared", host, (REMOVE_HOST, "done", {}), **ENDING)
situation("a host that is being cleared is forgotten", host, (REMOVE_HOST, "running", {}), forgotten=True, **ENDING)
situation("a host that joined waits for its agent", host, at=JOINED, **YOUNG)
situation("a host that joined never reported", host, at=JOINED, deadline=NOW, **YOUNG)
situation("a host that joined is to leave", host, at=JOINED, **ENDING)
situation("a host that joined has left", host, at=JOINED, left=True, **ENDING)
situation("a host that joined is forgotten", host, at=JOINED, forgotten=True, **ENDING)
situation("a host that is no longer named", host, at=OnPrem(hostname="h9", port=22, user="u"), heard=True)
situation("a host that joined needn't be named", host, at=JOINED, heard=True)


def fleet(of: FleetView) -> Decided:
    snapshot = FleetSnapshot(NOW, of, OfferBook(()), {})
    return snapshot, decide_fleet(snapshot)


THERE = b.host(0, LAB, host=ADDED)
situation("a fleet of hosts adds one", fleet, view(hosts=("h0", "h1"), to_add=("h1:22",), due_at=NOW))
situation("a fleet of hosts was asked for one that isn't named any more", fleet, view(to_add=("h1:22",), due_at=NOW))
situation(
    "a fleet of hosts adds one that is being cleared later", fleet, view(THERE.with_(**ENDING), to_add=("h0:22",))
)
situation("a fleet of hosts has one too many", fleet, view(THERE, hosts=("h1",)))
situation("a fleet of hosts names one by another user", fleet, view(THERE.with_(host=ADDED.with_(user="v"))))
situation("a fleet of hosts keeps those that joined", fleet, view(THERE.with_(host=JOINED), hosts=("h1",)))


# --- workflows -------------------------------------------------------------------------------------------------------


def course(outcome: Any = None, *, definition: Definition = ADD_HOST, **fields: Any) -> Decided:
    begun = workflow(b.host(0, LAB, host=ADDED), definition, **fields)
    snapshot = WorkflowSnapshot(NOW, begun, definition)
    said: Outcome | None = None if outcome is None else outcome(begun.unit, begun.act_until or 0)
    return snapshot, decide_workflow(snapshot) if said is None else decide_step(snapshot, said)


def done(*made: tuple[str, str]) -> Any:
    return lambda unit, attempt: StepDone(unit, attempt, made)


def waits(message: str = "") -> Any:
    return lambda unit, attempt: StepWaits(unit, attempt, message)


def failed(error: str, retry_after: float | None = None) -> Any:
    return lambda unit, attempt: StepFailed(unit, error, "m" * 600, retry_after, attempt)


FREE: dict[str, Any] = {"act_until": None, "due_at": NOW}
situation("a workflow makes its first attempt", course, **FREE)
situation("a workflow waits for an attempt", course)
situation("a workflow repeats an attempt of which nothing was heard", course, act_until=NOW, due_at=NOW)
situation("a workflow pauses", course, act_until=None, due_at=NOW + SECOND)
situation("a workflow that is cancelled keeps no pause", course, act_until=None, due_at=NOW + SECOND, cancelled=True)
situation("a workflow that is cancelled waits for its attempt", course, cancelled=True)
situation("a workflow that is undone pauses", course, status="undoing", act_until=None, due_at=NOW + 1, cancelled=True)
situation("a workflow that is over", course, status="done", act_until=None, due_at=None)
situation("a step is done", course, done())
situation("a step is done that made something", course, done(("relay", "r1")), step=1)
situation("a step is done and the next isn't needed", course, done(), step=1, failures=2)
situation("the last step is done", course, done(), step=4, message="old")
situation("the last step is done of what is cancelled", course, done(), step=4, cancelled=True)
situation("a step is undone", course, done(), status="undoing", step=3, state={"relay": "r1"})
situation("a step is undone and those before it needn't be", course, done(), status="undoing", step=1)
situation("a step waits", course, waits("not yet"), step=4, step_at=NOW - MINUTE)
situation("a step waited too long", course, waits("not yet"), step=4, step_at=NOW - 90 * SECOND)
situation("a step waited too long without a word", course, waits(), step=4, step_at=NOW - 90 * SECOND)
situation("a step fails and is repeated", course, failed("Transient"), step=1)
situation("a step fails once more", course, failed("Transient"), step=1, failures=2)
situation("a step fails and says when to repeat it", course, failed("Throttled", 30.0), step=1)
situation("a step fails for the last time", course, failed("Transient"), step=1, failures=ADD_HOST.steps[1].attempts)
situation("a step fails for good", course, failed("Unfit"), step=1)
situation("an undoing fails", course, failed("Unfit"), status="undoing", step=1)
situation("an undoing fails again and again", course, failed("Transient"), status="undoing", step=1, failures=20)
situation("a step fails that is never given up", course, failed("Unfit"), definition=REMOVE_HOST, failures=20)
situation("an outcome of an earlier attempt", course, lambda unit, attempt: StepDone(unit, attempt - 1))

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
    *workflows: tuple[Definition, str, dict[str, Any]], at: OnPrem = ADDED, reported: bool = False, **fields: Any
) -> Decided:
    one = b.host(0, LAB, host=at, **{"created_at": BEFORE, "last_processed_at": BEFORE, **fields})
    begun = tuple(workflow(one, definition, status, **more) for definition, status, more in workflows)
    presence = b.presence_of(one, last=NOW, facts=b.host_facts(addresses=("10.0.0.5",))) if reported else None
    snapshot = InstanceSnapshot(NOW, one, presence, view(one), (), None, begun)
    return snapshot, decide_instance(snapshot)


WRONG: dict[str, Any] = {"reason": "Unfit", "message": "it has no systemd"}
situation("a host is being set up", host, (ADD_HOST, "running", {}), **YOUNG, comes_to="again in 600 s")
ELSEWHERE = ADDED.with_(internal_ip="10.0.0.9")
situation("a host reports that is elsewhere", host, at=ELSEWHERE, reported=True, **YOUNG)
situation(
    "a host couldn't be set up",
    host,
    (ADD_HOST, "undone", WRONG),
    **YOUNG,
    comes_to="lab-0 pending → terminated (error); lab: failed",
)
situation(
    "a host that is being cleared is forgotten",
    host,
    (REMOVE_HOST, "running", {}),
    forgotten=True,
    **ENDING,
    comes_to="lab-0: cancelled; lab-0 terminating → terminated (terminated_by_user)",
)
situation("a host that joined waits for its agent", host, at=JOINED, **YOUNG, comes_to="again in 600 s")
situation("a host that joined is to leave", host, at=JOINED, **ENDING, comes_to="again in 60 s")
situation(
    "a host that joined has left",
    host,
    at=JOINED,
    left=True,
    **ENDING,
    comes_to="lab-0 terminating → terminated (terminated_by_user)",
)


def fleet(of: FleetView) -> Decided:
    snapshot = FleetSnapshot(NOW, of, OfferBook(()), {})
    return snapshot, decide_fleet(snapshot)


THERE = b.host(0, LAB, host=ADDED)
situation(
    "a fleet of hosts names one by another user",
    fleet,
    view(THERE.with_(host=ADDED.with_(user="v"))),
    comes_to="lab-0: host",
)


# --- workflows -------------------------------------------------------------------------------------------------------


def course(outcome: Any = None, *, definition: Definition = ADD_HOST, **fields: Any) -> Decided:
    begun = workflow(b.host(0, LAB, host=ADDED), definition, **fields)
    snapshot = WorkflowSnapshot(NOW, begun, definition)
    result: Outcome | None = None if outcome is None else outcome(begun.unit, begun.act_until or 0)
    return snapshot, decide_workflow(snapshot) if result is None else decide_step(snapshot, result)


def done(*made: tuple[str, str]) -> Any:
    return lambda unit, attempt: StepDone(unit, attempt, made)


def waits(message: str = "") -> Any:
    return lambda unit, attempt: StepWaits(unit, attempt, message)


def failed(error: str, retry_after: float | None = None) -> Any:
    return lambda unit, attempt: StepFailed(unit, error, "m" * 600, retry_after, attempt)


situation("a workflow pauses", course, act_until=None, due_at=NOW + SECOND, comes_to="again in 1 s")
situation("a workflow that is over", course, status="done", act_until=None, due_at=None, comes_to="nothing")
situation("the last step is done", course, done(), step=4, message="old", comes_to="lab-0 running → done")
situation("the last step is done of what is cancelled", course, done(), step=4, cancelled=True)
situation(
    "a step waits", course, waits("not yet"), step=4, step_at=NOW - MINUTE, comes_to="lab-0: act_until; again in 1 s"
)
situation("a step waited too long", course, waits("not yet"), step=4, step_at=NOW - 90 * SECOND)
situation("a step fails and says when to repeat it", course, failed("Throttled", 30.0), step=1)
situation("a step fails for good", course, failed("Unfit"), step=1)
situation(
    "an undoing fails",
    course,
    failed("Unfit"),
    status="undoing",
    step=1,
    comes_to="lab-0: failures, message, act_until; again in 5 s",
)
situation(
    "an outcome of an earlier attempt", course, lambda unit, attempt: StepDone(unit, attempt - 1), comes_to="nothing"
)

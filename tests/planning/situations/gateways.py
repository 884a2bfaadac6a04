"""Gateways: what a look at one comes to, on hosts that come, run, fail and leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.gateways import GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.machines.gateway import TO_LEAVE, TO_RUN
from chalicelib.planning.gateways.gateways import decide_gateway, heard
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from tests.planning.situations.kit import NOW, Decided, situation
from tests.world.gateways import carrying, gateway, host, look, seated

GOING: dict[str, Any] = {"status": GatewayStatus.deleting}


def alone(*hosts: Instance, fleet_exists: bool = True, **fields: Any) -> Decided:
    """One without replicas."""
    of = gateway(**{"created_at": NOW, "last_processed_at": NOW, **fields})
    snapshot = look(of, *hosts, now=NOW, fleet_exists=fleet_exists)
    return snapshot, decide_gateway(snapshot)


def carried(
    *machines: Instance,
    states: Sequence[ReplicaState] = (),
    replica: dict[str, Any] | None = None,
    seat: dict[str, Any] | None = None,
    free: Sequence[Instance] = (),
    now: int = NOW,
    **fields: Any,
) -> Decided:
    of = carrying(gateway(created_at=NOW, last_processed_at=NOW), *machines, **fields)
    states = states or [ReplicaState.running] * len(machines)
    ends = {"ends_by": NOW + TO_LEAVE}
    more = [{**(replica or {}), **(ends if state is ReplicaState.terminating else {})} for state in states]
    each = zip(of.replicas, states, more, strict=True)
    of = of.with_(replicas=tuple(one.with_(state=state, **rest) for one, state, rest in each))
    there = [seated(of, machine, num, **(seat or {})) for num, machine in enumerate(machines)]
    snapshot = look(of, *there, *free, now=now)
    return snapshot, decide_gateway(snapshot)


def said(says: str, message: str = "", state: ReplicaState = ReplicaState.provisioning, failed: str = "") -> Decided:
    """`failed`: what it couldn't do before."""
    of = carrying(gateway(), host(0), state=state)
    of = of.with_(replicas=tuple(one.with_(failed=bool(failed), message=failed) for one in of.replicas))
    machine = seated(of, host(0))
    draft = Draft(NOW)
    heard(draft, of, machine, says, message)
    return NounsSnapshot(NOW, (of, machine)), draft.plan()


UP, DOWN, ENDS = ReplicaState.running, ReplicaState.provisioning, ReplicaState.terminating
YOUNG: dict[str, Any] = {"status": GatewayStatus.provisioning, "running_at": None}
LEAVING: dict[str, Any] = {"leaving": True}

situation("gateway: submitted, with hosts", alone, host(0), host(1), wanted=2)
situation("gateway: submitted, too few hosts", alone, host(0), host(1, unreachable=True), wanted=2)
situation("gateway: submitted, no hosts", alone)
situation("gateway: its fleet is gone", alone, fleet_exists=False)
situation("gateway: no hosts for too long", alone, created_at=NOW - TO_RUN, message="waits")
situation("gateway: all its replicas run for the first time", carried, host(0), host(1), **YOUNG)
situation("gateway: one runs", carried, host(0), host(1), states=(UP, DOWN), **YOUNG)
situation(
    "gateway: one can't run", carried, host(0), states=(DOWN,), replica={"failed": True, "message": "no"}, **YOUNG
)
situation("gateway: too long", carried, host(0), states=(DOWN,), now=NOW + TO_RUN, **YOUNG)
situation("gateway: failed, and runs now", carried, host(0), status=GatewayStatus.failed)
situation("gateway: runs, one says what is wrong", carried, host(0), states=(DOWN,), replica={"message": "no nginx"})
situation(
    "gateway: its host leaves, another is free",
    carried,
    host(0, status=InstanceStatus.terminating),
    free=(host(1),),
)
situation("gateway: its host is gone", carried, host(0, status=InstanceStatus.terminated), free=(host(1),))
situation("gateway: fewer are wanted", carried, host(0), host(1), wanted=1)
situation("gateway: more are wanted", carried, host(0), free=(host(1),), wanted=2)
situation("gateway: deleted", carried, host(0), **GOING)
situation("gateway: deleted, waits for its host", carried, host(0), states=(ENDS,), seat=LEAVING, **GOING)
situation(
    "gateway: deleted, its host is silent", carried, host(0), states=(ENDS,), seat=LEAVING, now=NOW + TO_LEAVE, **GOING
)
situation("gateway: deleted, nothing left", carried, **GOING)
situation("gateway: its agent installs", said, "installing", "installing nginx")
situation("gateway: its agent runs it", said, "running")
situation("gateway: its agent can't", said, "failed", "install nginx first")
situation("gateway: its agent can't any more", said, "failed", "port 80 is taken", state=UP)
situation("gateway: its agent still can't", said, "failed", "no nginx", failed="no nginx")
situation("gateway: its agent can't for another reason", said, "failed", "no room", failed="no nginx")
situation("gateway: its agent tries again", said, "installing", "no nginx", failed="no nginx")
situation("gateway: its agent can at last", said, "running", failed="no nginx")
situation(
    "gateway: the host of one that failed leaves",
    carried,
    host(0, status=InstanceStatus.terminating),
    states=(DOWN,),
    replica={"failed": True, "message": "no nginx"},
)

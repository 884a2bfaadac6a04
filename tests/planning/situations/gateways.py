"""Gateways: what a look at one comes to, on hosts that come, run, fail and leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.gateways import GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance
from chalicelib.machines.gateway import TO_LEAVE
from chalicelib.planning.gateways.gateways import apply_report, decide_gateway
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from tests.planning.situations.kit import NOW, Decided, situation
from tests.world.gateways import carrying, gateway, host, seated, snapshot_of

GOING: dict[str, Any] = {"status": GatewayStatus.deleting}


def alone(*hosts: Instance, fleet_exists: bool = True, **fields: Any) -> Decided:
    """One without replicas."""
    of = gateway(**{"created_at": NOW, "last_processed_at": NOW, **fields})
    snapshot = snapshot_of(of, *hosts, now=NOW, fleet_exists=fleet_exists)
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
    snapshot = snapshot_of(of, *there, *free, now=now)
    return snapshot, decide_gateway(snapshot)


def reported(
    state_reported: str, message: str = "", state: ReplicaState = ReplicaState.provisioning, failed: str = ""
) -> Decided:
    """`failed`: what it couldn't do before."""
    of = carrying(gateway(), host(0), state=state)
    of = of.with_(replicas=tuple(one.with_(failed=bool(failed), message=failed) for one in of.replicas))
    machine = seated(of, host(0))
    draft = Draft(NOW)
    apply_report(draft, of, machine, state_reported, message)
    return NounsSnapshot(NOW, (of, machine)), draft.plan()


ENDS = ReplicaState.terminating
LEAVING: dict[str, Any] = {"leaving": True}

situation(
    "gateway: submitted, too few hosts",
    alone,
    host(0),
    host(1, unreachable_since=NOW),
    wanted=2,
    comes_to="edge-0: gateway; door submitted → provisioning",
)
situation("gateway: more are wanted", carried, host(0), free=(host(1),), wanted=2)
situation("gateway: deleted, waits for its host", carried, host(0), states=(ENDS,), seat=LEAVING, **GOING)
situation(
    "gateway: deleted, its host is silent",
    carried,
    host(0),
    states=(ENDS,),
    seat=LEAVING,
    now=NOW + TO_LEAVE,
    **GOING,
    comes_to="edge-0: gateway; door deleting → deleted",
)
situation("gateway: its agent can't", reported, "failed", "install nginx first", comes_to="door: replicas")
situation("gateway: its agent still can't", reported, "failed", "no nginx", failed="no nginx", comes_to="nothing")

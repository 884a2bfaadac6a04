"""A look at one fleet."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import MINUTE
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import MAX_IN_FLIGHT, decide_fleet
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b


def fleet(
    *machines: str,
    nodes: Any = "0..2",
    offers: Any = None,
    awaited: tuple[str, ...] = (),
    cluster: bool = False,
    batch: int = 0,
    until: int | None = None,
    **fields: Any,
) -> Decided:
    """`batch`: machines that the backend makes in one call; `until`: when the first one's purchase has had its time."""
    of = b.fleet("cloud", **{"created_at": BEFORE, "last_processed_at": BEFORE, **fields})
    there = [b.machine(num, of, status=InstanceStatus(status)) for num, status in enumerate(machines)]
    there[:1] = [first.with_(act_until=until) for first in there[:1]]
    book = OfferBook((b.offer(),) if offers is None else offers, awaited=awaited)
    spec = b.fleet_spec(nodes=nodes, **({"placement": "cluster"} if cluster else {}))
    facts = {**b.FACTS, "aws": b.FACTS["aws"].with_(batch=batch, multinode=cluster)}
    snapshot = FleetSnapshot(NOW, FleetView(of, spec, tuple(there)), book, facts)
    return snapshot, decide_fleet(snapshot)


situation("a fleet that has no room yet", fleet, "terminating", "idle", nodes="2", comes_to="nothing")
situation(
    "a fleet before a backend's first offers",
    fleet,
    nodes="1",
    offers=(),
    awaited=("aws",),
    comes_to="cloud: message; again in 5 s",
)
situation(
    "a fleet that pauses once more",
    fleet,
    nodes="1",
    offers=(),
    consolidation_attempt=3,
    message="no offer matches this fleet; will retry",
    due_at=NOW,
    comes_to="cloud: consolidation_attempt, paused_until; again in 600 s",
)
situation(
    "a fleet that ends and isn't due",
    fleet,
    "idle",
    status=FleetStatus.terminating,
    due_at=NOW + 1,
    comes_to="cloud-0 idle → terminating (terminated_by_user); again in 0.000001 s",
)
situation("a fleet that is over", fleet, status=FleetStatus.terminated, comes_to="nothing")

# --- several at a time ------------------------------------------------------------------------------------------------

FULL = ("pending",) * MAX_IN_FLIGHT
situation("a fleet that buys as many as it may", fleet, *FULL, nodes="200", next_instance_num=MAX_IN_FLIGHT, due_at=NOW)
situation("a fleet that may buy one more", fleet, *FULL[1:], nodes="200", next_instance_num=MAX_IN_FLIGHT, due_at=NOW)
CLUSTER: dict[str, Any] = {"nodes": "4", "cluster": True, "next_instance_num": 1}
situation(
    "a cluster whose first machine is asked for, with time",
    fleet,
    "pending",
    until=NOW + MINUTE,
    **CLUSTER,
    comes_to="again in 60 s",
)

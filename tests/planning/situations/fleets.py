"""A look at one fleet."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import MOST_AT_ONCE, MOST_PAUSES, decide_fleet
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


situation("a fleet that has what it needs", fleet, "idle", due_at=NOW)
situation("a fleet that is asked for machines", fleet, to_create=2, message="old", due_at=NOW)
situation("a fleet of machines for one job", fleet, nodes="1", offers=(b.offer(backend="runpod"),))
situation("a fleet with less than its minimum", fleet, "terminating", "idle", nodes="2..4", next_instance_num=2)
situation("a fleet that has no room yet", fleet, "terminating", "idle", nodes="2")
situation("a fleet with more than its maximum", fleet, "idle", "busy", "idle", "terminating", nodes="0..2")
situation("a fleet of hosts that is asked for machines", fleet, nodes=None, to_create=1, due_at=NOW)
situation("a fleet before a backend's first offers", fleet, nodes="1", offers=(), awaited=("aws",))
situation("a fleet without offers", fleet, nodes="1", offers=())
situation("a fleet whose offers have failed", fleet, nodes="1", tried=(b.offer().key,), due_at=NOW)
situation("a fleet that pauses", fleet, nodes="1", consolidation_attempt=1, paused_until=NOW + 1, due_at=NOW + 1)
situation("a fleet whose pause is over", fleet, nodes="1", consolidation_attempt=1, due_at=NOW)
situation(
    "a fleet that pauses once more",
    fleet,
    nodes="1",
    offers=(),
    consolidation_attempt=3,
    message="no offer matches this fleet; will retry",
    due_at=NOW,
)
situation(
    "a fleet that gives up", fleet, nodes="1", to_create=1, offers=(), consolidation_attempt=MOST_PAUSES, due_at=NOW
)
situation("a fleet that gave up", fleet, nodes="1", offers=(), consolidation_attempt=MOST_PAUSES + 1, due_at=NOW)
situation("a fleet that gave up and isn't due", fleet, nodes="1", offers=(), consolidation_attempt=MOST_PAUSES + 1)
situation("a fleet that ends", fleet, "idle", "terminating", status=FleetStatus.terminating, due_at=NOW)
situation("a fleet that ends and isn't due", fleet, "idle", status=FleetStatus.terminating, due_at=NOW + 1)
situation("a fleet that is empty at its end", fleet, status=FleetStatus.terminating, due_at=NOW)
situation("a fleet that is over", fleet, status=FleetStatus.terminated)

# --- several at a time ------------------------------------------------------------------------------------------------

FULL = ("pending",) * MOST_AT_ONCE
situation("a fleet that buys as many as it may", fleet, *FULL, nodes="200", next_instance_num=MOST_AT_ONCE, due_at=NOW)
for name, due in (("without a time", None), ("before its time", NOW + SECOND)):
    situation(f"a fleet that buys as many as it may, {name}", fleet, *FULL, nodes="200", due_at=due)
situation("a fleet that may buy one more", fleet, *FULL[1:], nodes="200", next_instance_num=MOST_AT_ONCE, due_at=NOW)
situation(
    "a fleet that is asked again after a pause", fleet, to_create=1, paused_until=BEFORE, tried=("x",), due_at=NOW
)
CLUSTER: dict[str, Any] = {"nodes": "4", "cluster": True, "next_instance_num": 1}
situation("a cluster that has no machine", fleet, batch=2, **CLUSTER)
for name, until in (("with time", NOW + MINUTE), ("with little time", NOW + SECOND), ("without a time", None)):
    situation(f"a cluster whose first machine is asked for, {name}", fleet, "pending", until=until, **CLUSTER)
situation("a cluster that is looked at in time", fleet, "pending", due_at=NOW + SECOND, **CLUSTER)
for batch in (0, 1, 2):
    situation(f"a cluster of machines that are made {batch} at a time", fleet, "idle", batch=batch, **CLUSTER)
situation(
    "machines that could be made together, but are no cluster", fleet, "idle", batch=2, nodes="3", next_instance_num=1
)

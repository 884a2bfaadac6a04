"""A look at one instance: on its way in, alive, on its way out."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instances import HostGpu, InstanceStatus
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.offers import CONTAINER, OfferTerms
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from tests.planning.situations.kit import BEFORE, HAND, NOW, Decided, placed, situation
from tests.world import nouns as b

FACTS = b.host_facts(8, 32, hostname="h1", addresses=("10.0.0.5",))


def instance_at(
    *,
    bought: bool = True,
    job: str = "",
    seen: int | None = None,
    facts: Any = FACTS,
    nodes: Any = "0..2",
    blocks: Any = 1,
    others: int = 0,
    fleet: dict[str, Any] | None = None,
    container: bool = False,
    mounts: bool = False,
    kill_at: int | None = None,
    cluster: bool = False,
    **fields: Any,
) -> InstanceSnapshot:
    """`job`: the status of the one that holds it, until `kill_at`; `mounts`: with a volume; `seen`: seconds until its
    agent is expected; None: it said nothing; `container`: bought in place of a machine"""
    of = b.fleet("cloud", **(fleet or {}))
    young = fields.get("status", "idle") in ("pending", "provisioning")
    born = {"started_at": None, "idle_since": None} if young else {"started_at": BEFORE, "idle_since": BEFORE}
    fields = {**born, "created_at": BEFORE, "last_processed_at": BEFORE, **fields}
    fields["status"] = InstanceStatus(fields.get("status", "idle"))
    if container:
        fields["offer"] = b.offer("pod", instance_runtime=CONTAINER)
    one = (b.machine if bought else b.host)(0, of, **fields)
    jobs: tuple[Job, ...] = ()
    if job:
        held = placed(one, b.job(b.run())).with_(status=JobStatus(job), kill_at=kill_at)
        if mounts and held.assignment is not None:
            has = held.assignment.with_(volumes=(Mounted(id="v", name="data", path="/data"),))
            held = held.with_(assignment=has)
        jobs, one = (held,), b.holding(one, held).with_(status=one.status)
    presence = None if seen is None else b.presence_of(one, last=NOW + (seen - 60) * SECOND, facts=facts)
    rest = tuple(b.machine(num, of) for num in range(1, 1 + others))
    close = {"placement": "cluster"} if cluster else {}
    view = FleetView(of, b.fleet_spec(nodes=nodes, blocks=blocks, **close), (one, *rest))
    return InstanceSnapshot(NOW, one, presence, view, jobs, b.FACTS["aws"])


def instance(**how: Any) -> Decided:
    snapshot = instance_at(**how)
    return snapshot, decide_instance(snapshot)


YOUNG: dict[str, Any] = {"status": "pending", "due_at": NOW}

situation(
    "a pending host that is split",
    instance,
    bought=False,
    seen=60,
    blocks="auto",
    facts=FACTS.with_(gpus=(HostGpu(name="A100", memory_mib=81920, vendor="nvidia", driver="550"),) * 4),
    **YOUNG,
)

situation(
    "an idle machine that a job waits for",
    instance,
    job="provisioning",
    seen=60,
    comes_to="cloud-0 idle → busy; again in 60.000001 s",
)
situation(
    "a silent machine that was just asked about",
    instance,
    status="busy",
    job="running",
    seen=-90,
    unreachable_since=NOW - 90 * SECOND,
    due_at=NOW + 9 * SECOND,
    comes_to="again in 9 s",
)
situation("a silent host", instance, bought=False, status="busy", job="running", seen=-1)
situation(
    "an idle machine above the maximum",
    instance,
    seen=60,
    nodes="0..1",
    others=1,
    comes_to="cloud-0 idle → terminating (max_instances_limit); Terminate; again in 5 s",
)

situation(
    "an ending host of a fleet that must have it and pauses",
    instance,
    bought=False,
    status="terminating",
    nodes="1..2",
    due_at=NOW,
    fleet={"paused_until": NOW + HOUR, "due_at": NOW + HOUR},
    comes_to="cloud: paused_until; cloud-0 terminating → terminated",
)

# --- with volumes, and with an end that is known ----------------------------------------------------------------------

situation(
    "a machine with disks comes up",
    instance,
    seen=60,
    disks=("v", "w"),
    act_until=NOW + 1,
    **YOUNG,
    comes_to="cloud-0 pending → idle; again in 60.000001 s",
)
OVER: dict[str, Any] = {"status": "terminating", "due_at": NOW, "handles": HAND, "disks": ("v",)}
situation("a machine ends that has a disk, and nobody uses it", instance, **OVER)
situation(
    "a machine ends that has a disk, and a job uses it",
    instance,
    **{**OVER, **{"job": "running", "mounts": True, "seen": 60, "detach_by": NOW + SECOND}},
    comes_to="cloud-0: detach_by; again in 30 s",
)
USED: dict[str, Any] = {"status": "busy", "job": "running", "seen": 600}
situation(
    "a machine was bought for a time that ends now",
    instance,
    due_at=NOW,
    **{"offer": b.offer().with_(terms=OfferTerms(ends_at=NOW + 0)), **USED},
    comes_to="Describe; again in 60 s",
)
situation(
    "a machine was bought for a time that ends now, and is looked at",
    instance,
    due_at=NOW + 1,
    **{"offer": b.offer().with_(terms=OfferTerms(ends_at=NOW + 0)), **USED},
)
situation(
    "a node of a cluster has no address", instance, cluster=True, due_at=NOW, **USED, comes_to="Describe; again in 15 s"
)
situation(
    "a host is silent",
    instance,
    bought=False,
    seen=-1,
    due_at=NOW,
    comes_to=("cloud-0: offer, hostname, internal_ip, runtimes, isolation, unreachable_since; again in 600 s"),
)

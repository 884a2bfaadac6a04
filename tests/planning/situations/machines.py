"""A look at one instance: on its way in, alive, on its way out."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.instances import GpuSeen, InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus, Mounted
from chalicelib.domain.offers import Disk
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.instance import TO_BE_WARNED, TO_DETACH, decide_instance
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
    vm: bool = True,
    mounts: bool = False,
    kill_at: int | None = None,
    cluster: bool = False,
    **fields: Any,
) -> InstanceSnapshot:
    """`job`: the status of the one that holds it, until `kill_at`; `mounts`: with a volume; `seen`: seconds until its
    agent is expected; None: it said nothing"""
    of = b.fleet("cloud", **(fleet or {}))
    young = fields.get("status", "idle") in ("pending", "provisioning")
    born = {"started_at": None, "idle_since": None} if young else {"started_at": BEFORE, "idle_since": BEFORE}
    fields = {**born, "created_at": BEFORE, "last_processed_at": BEFORE, **fields}
    fields["status"] = InstanceStatus(fields.get("status", "idle"))
    one = (b.machine if bought else b.host)(0, of, **fields)
    jobs: tuple[Job, ...] = ()
    if job:
        held = placed(one, b.job(b.run())).with_(status=JobStatus(job), kill_at=kill_at)
        if mounts and held.assignment is not None:
            has = held.assignment.with_(volumes=(Mounted(id="v", name="data", path="/data"),))
            held = held.with_(assignment=has)
        jobs, one = (held,), b.holding(one, held).with_(status=one.status)
    presence = None if seen is None else b.heard(one, last=NOW + (seen - 60) * SECOND, facts=facts)
    rest = tuple(b.machine(num, of) for num in range(1, 1 + others))
    close = {"placement": "cluster"} if cluster else {}
    view = FleetView(of, b.fleet_spec(nodes=nodes, blocks=blocks, **close), (one, *rest))
    return InstanceSnapshot(NOW, one, presence, view, jobs, b.FACTS["aws"].with_(vm=vm))


def instance(**how: Any) -> Decided:
    snapshot = instance_at(**how)
    return snapshot, decide_instance(snapshot)


ENDING: dict[str, Any] = {"fleet": {"status": FleetStatus.terminating}}
YOUNG: dict[str, Any] = {"status": "pending", "due_at": NOW}

situation("a pending host without a job is looked at now and then", instance, bought=False, **YOUNG)
situation("a pending host with a job is looked at soon", instance, bought=False, job="provisioning", **YOUNG)
situation("a pending machine whose purchase is under way", instance, act_until=NOW + 1, deadline=NOW + HOUR, **YOUNG)
situation("a pending machine whose purchase may be repeated", instance, act_until=NOW, deadline=NOW + HOUR, **YOUNG)
situation("a pending machine without a purchase", instance, deadline=NOW + HOUR, **YOUNG)
situation("a pending machine whose fleet ends", instance, act_until=NOW + 1, **ENDING, **YOUNG)
situation("a pending machine that took too long", instance, act_until=NOW + 1, deadline=NOW, **YOUNG)
situation("a pending machine whose agent reports", instance, seen=60, act_until=NOW + 1, deadline=NOW + 9, **YOUNG)
situation("a pending machine reports to its job", instance, seen=60, job="provisioning", act_until=NOW + 1, **YOUNG)
situation("a pending machine reports to a fleet that ends", instance, seen=60, act_until=NOW + 1, **ENDING, **YOUNG)
situation("a pending host whose agent reports", instance, bought=False, seen=60, **YOUNG)
situation(
    "a pending host whose GPUs can't be split",
    instance,
    bought=False,
    seen=60,
    blocks=4,
    facts=FACTS.with_(cpus=6, gpus=(GpuSeen(name="A100", memory_mib=81920, vendor="nvidia", driver="550"),) * 3),
    **YOUNG,
)
situation(
    "a pending host that is split",
    instance,
    bought=False,
    seen=60,
    blocks="auto",
    facts=FACTS.with_(gpus=(GpuSeen(name="A100", memory_mib=81920, vendor="nvidia", driver="550"),) * 4),
    **YOUNG,
)
situation("a machine in the making is asked about", instance, status="provisioning", due_at=NOW, deadline=NOW + HOUR)
situation("a machine in the making isn't asked about yet", instance, status="provisioning", due_at=NOW + 1)
situation("a machine in the making took too long", instance, status="provisioning", due_at=NOW + 1, deadline=NOW)
situation("a machine in the making reports", instance, status="provisioning", seen=60, due_at=NOW + 1, hostname="mine")

situation("an idle machine that a job waits for", instance, job="provisioning", seen=60)
situation("a busy machine whose last job has ended", instance, status="busy", seen=60)
situation("an idle machine of a fleet that ends", instance, seen=60, **ENDING)
situation("an idle host whose facts changed", instance, bought=False, seen=60, facts=FACTS.with_(cpus=9))
situation(
    "an idle host whose facts are as they were",
    instance,
    bought=False,
    has=b.resources(8, 32, disk=Disk(size_mib=200_000), cpu_arch="x86"),
    hostname="h1",
    internal_ip="10.0.0.5",
    runtimes=("process",),
    isolation="user",
    seen=60,
)
situation(
    "a busy host keeps the facts that it was given",
    instance,
    bought=False,
    status="busy",
    job="running",
    seen=60,
    facts=FACTS.with_(cpus=9),
)
situation("an idle machine keeps what was bought", instance, seen=60, facts=FACTS.with_(cpus=9), idle_seconds=None)
situation("a machine that is silent for the first time", instance, status="busy", job="running", seen=-1)
situation("a machine at the last moment of its promise", instance, status="busy", job="running", seen=0)
situation(
    "a silent machine is asked about again",
    instance,
    status="busy",
    job="running",
    seen=-90,
    unreachable=True,
    unreachable_since=NOW - 90 * SECOND,
    due_at=NOW,
)
situation(
    "a silent machine that was just asked about",
    instance,
    status="busy",
    job="running",
    seen=-90,
    unreachable=True,
    unreachable_since=NOW - 90 * SECOND,
    due_at=NOW + 9 * SECOND,
)
situation(
    "a silent machine near its end",
    instance,
    status="busy",
    job="running",
    seen=-90,
    unreachable=True,
    unreachable_since=NOW - 20 * MINUTE + 9 * SECOND,
    due_at=NOW,
)
situation(
    "a machine that was silent for too long",
    instance,
    status="busy",
    job="running",
    seen=-90,
    unreachable=True,
    unreachable_since=NOW - 20 * MINUTE,
    due_at=NOW,
)
situation("a silent host", instance, bought=False, status="busy", job="running", seen=-1)
situation(
    "a machine that reports again",
    instance,
    status="busy",
    job="running",
    seen=60,
    unreachable=True,
    unreachable_since=BEFORE,
)
situation("an idle machine above the maximum", instance, seen=60, nodes="0..1", others=1)
situation("an idle machine at the maximum", instance, seen=60, nodes="0..2", others=1, idle_since=NOW)
situation("a machine that has idled long enough", instance, seen=60)
situation("a machine that idles for a moment yet", instance, seen=60, idle_since=NOW - 299 * SECOND)
situation("a machine that idles at the minimum", instance, seen=60, nodes="1..2")
situation("a machine that idles above the minimum", instance, seen=60, nodes="1..3", others=1)
situation("a machine that idles where a machine is for one job", instance, seen=60, vm=False)
situation("a machine that may idle forever", instance, seen=60, idle_seconds=None)
situation("a machine that nobody heard of", instance, idle_seconds=None)

situation("an ending machine is given back", instance, status="terminating", due_at=NOW)
situation("an ending machine is given back again, later", instance, status="terminating", due_at=NOW, stop_attempts=4)
situation(
    "an ending machine is given back for the ninth time", instance, status="terminating", due_at=None, stop_attempts=9
)
situation(
    "an ending machine that isn't asked again yet", instance, status="terminating", due_at=NOW + 1, stop_attempts=1
)
situation("an ending host with a job", instance, bought=False, status="terminating", job="running", due_at=NOW)
situation("an ending host without one", instance, bought=False, status="terminating", due_at=NOW)
situation(
    "an ending host of a fleet that must have it",
    instance,
    bought=False,
    status="terminating",
    nodes="1..2",
    due_at=NOW,
)
situation(
    "an ending host of a fleet that must have it and pauses",
    instance,
    bought=False,
    status="terminating",
    nodes="1..2",
    due_at=NOW,
    fleet={"paused_until": NOW + HOUR, "due_at": NOW + HOUR},
)
situation("a terminated machine", instance, status="terminated")

# --- with volumes, and with an end that is known ----------------------------------------------------------------------

situation("a machine with disks comes up", instance, seen=60, disks=("v", "w"), act_until=NOW + 1, **YOUNG)
OVER: dict[str, Any] = {"status": "terminating", "due_at": NOW, "handles": HAND, "disks": ("v",)}
for name, how in (
    ("and nobody uses it", {}),
    ("and was never made", {"handles": (), "started_at": None}),
    ("and is waited for", {"detach_by": NOW + SECOND}),
    ("and was waited for", {"detach_by": NOW}),
    ("and is waited for by far", {"detach_by": NOW + HOUR}),
    ("and a job uses it", {"job": "running", "mounts": True, "seen": 60, "detach_by": NOW + SECOND}),
    ("and a job is there that doesn't use it", {"job": "running", "seen": 60}),
    ("and a job that uses it is silent", {"job": "running", "mounts": True, "seen": -1}),
    ("and its job has ended", {"job": "done", "mounts": True, "seen": 60}),
    ("and its job is to be killed", {"job": "terminating", "mounts": True, "seen": 60, "kill_at": NOW - TO_DETACH + 1}),
    ("and its job was to be killed", {"job": "terminating", "mounts": True, "seen": 60, "kill_at": NOW - TO_DETACH}),
):
    situation(f"a machine ends that has a disk, {name}", instance, **{**OVER, **how})
USED: dict[str, Any] = {"status": "busy", "job": "running", "seen": 600}
for name, at in (("in a while", TO_BE_WARNED + 1), ("soon", TO_BE_WARNED), ("now", 0)):
    end = {"offer": b.offer().with_(backend_data={"ends_at": NOW + at}), **USED}
    situation(f"a machine was bought for a time that ends {name}", instance, due_at=NOW, **end)
    situation(f"a machine was bought for a time that ends {name}, and is looked at", instance, due_at=NOW + 1, **end)
situation("a node of a cluster has no address", instance, cluster=True, due_at=NOW, **USED)
situation("a node of a cluster has its address", instance, cluster=True, internal_ip="10.0.0.5", due_at=NOW, **USED)
situation("a host is silent", instance, bought=False, seen=-1, due_at=NOW)
situation("a host is still silent", instance, bought=False, seen=-1, unreachable=True, unreachable_since=1, due_at=NOW)

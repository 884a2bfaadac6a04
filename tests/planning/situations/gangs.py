"""Tasks on several nodes: how a queue's look reserves their places, and how a run's look starts or undoes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gangs import Gang, GangStatus, gang_id
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Attempt, JobStatus
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason
from chalicelib.domain.runs import RunStatus
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.gang_placement import HOLD_AFTER
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.planning.situations.kit import BEFORE, NOW, Decided, placed, situation
from tests.world import nouns as b

CLUSTER = b.fleet("cluster")
SEVERAL = {"aws": BackendFacts(name="aws", multinode=True, batch=2)}
YOUNG: dict[str, Any] = {"status": InstanceStatus.pending, "started_at": None, "idle_since": None}
FAILED = Attempt(offer_key=b.offer().key, error="sold out")


def nodes(name: str = "train", count: int = 2, *, age: int = 0, attempts: Any = (), **config: Any) -> list[QueuedJob]:
    given = config if "groups" in config else {"nodes": count, **config}
    spec = b.run_spec(run_name=name, **{"commands": [] if "groups" in config else ["true"], **given})
    of = b.run(name, submitted_at=NOW - age, last_processed_at=BEFORE)
    specs = job_specs(spec, images=b.Images())
    return [
        QueuedJob(b.job(of, node=each.job_num, attempts=attempts, due_at=NOW, last_processed_at=BEFORE), of, each, spec)
        for each in specs
    ]


def gang_of(unit: Sequence[QueuedJob], *places: Instance, status: str = "gathering", **fields: Any) -> Gang:
    lead = unit[0].job
    known = {"began_at": BEFORE, "last_processed_at": BEFORE, "until": NOW + 20 * SECOND, "due_at": NOW + 20 * SECOND}
    return Gang(
        id=gang_id(lead),
        run_id=lead.run_id,
        run_name=lead.run_name,
        project_id=lead.project_id,
        nodes=len(unit),
        status=GangStatus(status),
        places=tuple(each.id for each in places),
        **{**known, **fields},
    )


# --- the queue's look ------------------------------------------------------------------------------------------------


def hosts(count: int) -> list[Instance]:
    return [b.host(n, CLUSTER, internal_ip=f"10.0.0.{n + 1}") for n in range(count)]


def of_hosts(*there: Instance) -> FleetView:
    written = {"hosts": [f"h{n}" for n in range(max(1, len(there)))], "network": "10.0.0.0/8"}
    return b.view(CLUSTER, *there, placement="cluster", ssh_config=written)


def of_machines(*there: Instance, least: int = 0, most: int | str = 4, **config: Any) -> FleetView:
    fleet = CLUSTER.with_(next_instance_num=len(there))
    return b.view(fleet, *there, placement="cluster", nodes=f"{least}..{most}", **config)


def queue(
    *items: QueuedJob,
    fleets: tuple[FleetView, ...],
    offers: tuple[Offer, ...] = (),
    gangs: Sequence[tuple[Sequence[QueuedJob], Gang]] = (),
    ahead: Sequence[QueuedJob] = (),
    awaited: tuple[str, ...] = (),
) -> Decided:
    known = {unit[0].job.id: gang for unit, gang in gangs}
    book = OfferBook(offers, NOW, awaited=awaited)
    snapshot = QueueSnapshot(NOW, b.PROJECT, items, fleets, book, SEVERAL, gangs=known, ahead=tuple(ahead))
    return snapshot, decide_queue(snapshot)


TWO, FOUR = nodes(), nodes(count=4)
THERE = hosts(4)
BUSY = b.holding(THERE[0], b.job(b.run("other")))
AGED = nodes("gang", 4, age=HOLD_AFTER)

situation(
    "two nodes without their second job",
    queue,
    TWO[0],
    fleets=(of_hosts(*hosts(3)),),
    comes_to="train-0-0: message; again in 60 s",
)
situation("four nodes have hosts held back", queue, *AGED, b.queued("small"), fleets=(of_hosts(BUSY, *THERE[1:]),))
situation(
    "four nodes in a cluster of one",
    queue,
    *FOUR,
    fleets=(of_hosts(*hosts(1)),),
    comes_to="train-0-0 submitted → failed (failed_to_start_due_to_no_capacity)",
)
situation(
    "two nodes before a backend's first offers",
    queue,
    *TWO,
    fleets=(of_machines(),),
    awaited=("aws",),
    comes_to="train-0-0: message; again in 5 s",
)
situation("two nodes without a fleet", queue, *TWO, fleets=())
situation(
    "a gang whose rest isn't free",
    queue,
    *FOUR,
    fleets=(of_hosts(b.holding(THERE[0], FOUR[0].job), b.holding(THERE[1], b.job(b.run("other"))), *THERE[2:]),),
    gangs=((FOUR, gang_of(FOUR, THERE[0])),),
    comes_to="train-0-0: message; again in 60 s",
)
situation(
    "a gang one of whose hosts is silent",
    queue,
    *FOUR,
    fleets=(of_hosts(b.holding(THERE[0], FOUR[0].job).with_(unreachable_since=NOW), *THERE[1:], b.host(4, CLUSTER)),),
    gangs=((FOUR, gang_of(FOUR, THERE[0])),),
    comes_to="train-0-0: message; again in 60 s",
)
situation(
    "a gang that was sealed meanwhile",
    queue,
    *TWO,
    fleets=(of_hosts(*THERE),),
    gangs=((TWO, gang_of(TWO, *THERE[:2], status="sealed")),),
    comes_to="nothing",
)
situation(
    "a gang that was undone tries again",
    queue,
    *TWO,
    fleets=(of_hosts(*THERE),),
    gangs=((TWO, gang_of(TWO, status="undone", message="gave way to b", until=None, due_at=None)),),
    comes_to=(
        "cluster-0 idle → busy; cluster-1 idle → busy; train-0-0: reserved; train-0 undone → sealed; StartExecution"
    ),
)
LATE_NODES = nodes("later", 3)
situation(
    "a gang gives way to one further ahead",
    queue,
    *FOUR,
    *LATE_NODES,
    fleets=(of_hosts(*(b.holding(THERE[n], LATE_NODES[n].job) for n in range(2)), *THERE[2:]),),
    gangs=((LATE_NODES, gang_of(LATE_NODES, *THERE[:2])),),
)


def in_zone(name: str) -> tuple[Handle, ...]:
    return (Handle(kind="vm", id="vm-1", data={"zone": name}),)


HERE, DEAR, AWAY = b.offer(), b.offer("m2", 2.0), b.offer("m3", 3.0, region="us")
FIRST = b.machine(0, CLUSTER, handles=in_zone("eu-a"), for_run=True)
LED = b.holding(FIRST, FOUR[0].job)
HAS_FIRST: dict[str, Any] = {"gangs": ((FOUR, gang_of(FOUR, FIRST)),)}
situation(
    "a cluster is begun",
    queue,
    *FOUR,
    fleets=(of_machines(),),
    offers=(DEAR, HERE),
    comes_to=(
        "cluster: next_instance_num; new instance cluster-0 pending; new gang train-0 gathering; StartExecution; Create"
    ),
)
situation(
    "a cluster is begun with another offer",
    queue,
    *nodes(count=4, attempts=(FAILED,)),
    fleets=(of_machines(),),
    offers=(DEAR, HERE),
)
situation(
    "a cluster that may be too small isn't begun",
    queue,
    *FOUR,
    fleets=(of_machines(most=3),),
    offers=(HERE,),
    comes_to="train-0-0 submitted → failed (failed_to_start_due_to_no_capacity)",
)
situation(
    "the rest is bought where the first machine is",
    queue,
    *FOUR,
    fleets=(of_machines(LED),),
    offers=(HERE,),
    **HAS_FIRST,
)
situation(
    "the rest is bought but for what is there and free",
    queue,
    *FOUR,
    fleets=(of_machines(LED, b.machine(1, CLUSTER, handles=in_zone("eu-a")), b.machine(2, CLUSTER, **YOUNG)),),
    offers=(HERE,),
    **HAS_FIRST,
)
situation(
    "the rest has no room yet",
    queue,
    *FOUR,
    fleets=(of_machines(LED, b.holding(b.machine(1, CLUSTER), b.job(b.run("other"))), most=4),),
    offers=(HERE,),
    **HAS_FIRST,
    comes_to="train-0-0: message; again in 60 s",
)
SOLD: dict[str, Any] = {"offers": (AWAY,)}
situation(
    "nothing is left where the first machine is",
    queue,
    *FOUR,
    fleets=(of_machines(LED),),
    **SOLD,
    **HAS_FIRST,
    comes_to="train-0 gathering → undone",
)
UNDONE: dict[str, Any] = {"gangs": ((FOUR, gang_of(FOUR, status="undone", until=None, due_at=None)),)}
situation(
    "the machines of a place that won't do are ended",
    queue,
    *FOUR,
    fleets=(of_machines(FIRST),),
    **SOLD,
    **UNDONE,
    comes_to="train-0-0: attempts; cluster-0 idle → terminating (no_offers)",
)
situation(
    "machines that somebody uses stay where they are",
    queue,
    *FOUR,
    fleets=(of_machines(FIRST, b.holding(b.machine(1, CLUSTER), b.job(b.run("other"))), most=9),),
    **SOLD,
    **UNDONE,
)
situation(
    "a machine that another job has just got stays where it is",
    queue,
    b.queued("small"),
    *FOUR,
    fleets=(of_machines(FIRST, b.machine(1, CLUSTER, for_run=True), most=9),),
    **SOLD,
    **UNDONE,
    comes_to="small-0-0 submitted → provisioning; cluster-0 idle → busy; "
    "train-0-0 submitted → failed (failed_to_start_due_to_no_capacity)",
)


# --- the run's look --------------------------------------------------------------------------------------------------

MET = [b.machine(n, CLUSTER, for_run=True, internal_ip=f"10.0.0.{n + 1}", started_at=BEFORE) for n in range(3)]
SEALED: dict[str, Any] = {"gang": "sealed", "until": NOW + MINUTE, "due_at": NOW + MINUTE}


def run(
    status: str = "submitted",
    gang: str = "gathering",
    *,
    jobs: Sequence[str] = ("submitted",) * 3,
    places: Sequence[Instance] = MET,
    reserved: bool = True,
    first: dict[str, Any] | None = None,
    of: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    gone: Sequence[int] = (),
    **fields: Any,
) -> Decided:
    """A run of three nodes on machines that its gang has claimed; jobs that aren't `submitted` are placed there.
    `first`: what the first node's job says; `gone`: places whose machine isn't there any more."""
    spec = b.run_spec(nodes=3, **(config or {}))
    one = b.run(**{"submitted_at": BEFORE, "last_processed_at": BEFORE, "status": RunStatus(status), **(of or {})})
    specs = job_specs(spec, images=b.Images())
    unit = [QueuedJob(b.job(one, node=each.job_num, due_at=None), one, each, spec) for each in specs]
    members, there = [], {}
    for rank, item in enumerate(unit):
        job = item.job.with_(status=JobStatus(jobs[rank]), pulling_at=NOW, running_at=NOW)
        if rank < len(places):
            job = job if jobs[rank] == "submitted" else placed(places[rank], job)
            held = b.holding(places[rank], job)
            if rank not in gone:
                there[held.id] = held
        members.append(job.with_(**({"reserved": reserved, **(first or {})} if rank == 0 else {})))
    gang_found = gang_of(unit, *places, status=gang, **fields)
    presences = {key: b.presence_of(each, last=NOW) for key, each in there.items()}
    snapshot = RunSnapshot(NOW, one, spec, tuple(specs), tuple(members), there, presences, gangs=(gang_found,))
    return snapshot, decide_run(snapshot)


situation(
    "a gang that gathers is awaited", run, reserved=False, places=MET[:2], comes_to="train: message; again in 20 s"
)
situation(
    "a gang that gathers loses a host",
    run,
    reserved=False,
    places=MET[:2],
    gone=(1,),
    comes_to="cluster-0 busy → idle; train-0 gathering → undone; again in 0 s",
)
situation("a gang is released at once", run, **SEALED)
situation(
    "a gang waits for an address",
    run,
    places=[MET[0], MET[1].with_(internal_ip=""), MET[2]],
    **SEALED,
    comes_to="train: message; again in 60 s",
)
situation(
    "a gang waited too long for an address",
    run,
    places=[MET[0], MET[1].with_(internal_ip=""), MET[2]],
    **{**SEALED, "until": NOW},
)
situation(
    "a gang waited too long for a report",
    run,
    places=[MET[0], MET[1].with_(status=InstanceStatus.provisioning, started_at=None, internal_ip=""), MET[2]],
    **{**SEALED, "until": NOW},
)
situation("a gang that is sealed loses a host", run, gone=(2,), **SEALED)
ENDED = {"status": InstanceStatus.terminating, "reason": InstanceReason.error}
situation(
    "a gang that is sealed loses a machine",
    run,
    places=[MET[0], MET[1].with_(**ENDED, message="reclaimed"), MET[2]],
    **SEALED,
)
situation(
    "a gang whose purchase is refused begins again",
    run,
    places=[MET[0].with_(**ENDED, started_at=None), MET[1], MET[2]],
    first={"attempts": (FAILED,)},
    **SEALED,
)
NEXT: dict[str, Any] = {"gang": "starting", "until": None, "due_at": None, "reserved": False}
ONE_FIRST: dict[str, Any] = {"config": {"startup_order": "master-first"}}
situation(
    "the other nodes wait for the first",
    run,
    jobs=("pulling", "submitted", "submitted"),
    **ONE_FIRST,
    **NEXT,
    comes_to="train submitted → provisioning; again in 60 s",
)
situation("the other nodes follow the first", run, jobs=("running", "submitted", "submitted"), **ONE_FIRST, **NEXT)
situation(
    "the first node fails before the others start",
    run,
    jobs=("failed", "submitted", "submitted"),
    first={"reason": JobReason.container_exited_with_error, "exit_status": 3, "finished_at": NOW},
    **ONE_FIRST,
    **NEXT,
    comes_to="cluster-1 busy → idle; cluster-2 busy → idle; train-0 starting → undone; again in 0 s",
)
STOP: dict[str, Any] = {"reason": RunReason.stopped_by_user}
situation(
    "a run that is stopped gives its places back",
    run,
    "terminating",
    of=STOP,
    **SEALED,
    comes_to=(
        "cluster-0 busy → idle; cluster-1 busy → idle; cluster-2 busy → idle; train-0 sealed → undone; again in 0 s"
    ),
)
situation(
    "a run that is stopped ends once its places are given back",
    run,
    "terminating",
    of=STOP,
    places=(),
    gang="undone",
    until=None,
    due_at=None,
    reserved=False,
)
situation(
    "a gang that is undone gives the rest back",
    run,
    gang="undone",
    until=None,
    due_at=NOW,
    reserved=False,
    comes_to="cluster-0 busy → idle; cluster-1 busy → idle; cluster-2 busy → idle; train-0: places; again in 0 s",
)

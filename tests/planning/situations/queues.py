"""A look at a project's queue: who gets a place, who waits for one, and who never will."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Attempt
from chalicelib.domain.offers import Availability, Offer
from chalicelib.domain.runs import RunStatus
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.buying import MOST_TRIED
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b

CLOUD, LOCAL = b.fleet("cloud"), b.fleet("local")
TRIED = Attempt(offer_key=b.offer().key, error="sold out")


def asks(
    name: str = "a",
    *,
    job: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    alone: bool = False,
    **config: Any,
) -> Any:
    """A job that waits. `config`: its run's; `job` and `run`: what the nouns say; `alone`: its run has no other."""
    item = b.queued(name, b.run_spec(**config), submitted_at=BEFORE)
    known = {"due_at": NOW, "last_processed_at": BEFORE, **(job or {})}
    return QueuedJob(item.job.with_(**known), item.run.with_(**(run or {})), item.spec, item.run_spec, alone=alone)


def cloud(*there: Instance, nodes: Any = "0..2", **config: Any) -> FleetView:
    return b.view(CLOUD, *there, nodes=nodes, **config)


def local(*there: Instance, **config: Any) -> FleetView:
    return b.view(LOCAL, *there, **config)


def queue(
    *items: QueuedJob,
    fleets: tuple[FleetView, ...] = (),
    offers: tuple[Offer, ...] = (),
    awaited: tuple[str, ...] = (),
) -> Decided:
    book = OfferBook(offers, NOW, awaited=awaited)
    snapshot = QueueSnapshot(NOW, b.PROJECT, items, fleets, book, b.FACTS)
    return snapshot, decide_queue(snapshot)


HOST = b.host(0, LOCAL, hostname="h1", internal_ip="10.0.0.5")
SPLIT = b.host(0, LOCAL, total_blocks=2, offer=b.host(0).offer.with_(blocks=2, total_blocks=2))
YOUNG = {"status": InstanceStatus.pending, "started_at": None, "idle_since": None}
GPU = {"resources": {"gpu": 1}}

situation(
    "two jobs wait for a backend's first offers",
    queue,
    asks("a", job={"submitted_at": NOW}),
    asks("b", job={"submitted_at": NOW}),
    fleets=(cloud(),),
    awaited=("aws",),
)
situation("a job has waited long for a backend's first offers", queue, asks(), fleets=(cloud(),), awaited=("aws",))
situation("an empty queue", queue, fleets=(local(HOST),))
situation("a job takes a free host", queue, asks(), fleets=(local(HOST),))
situation(
    "a job that was submitted again takes a free host",
    queue,
    asks(ports=[80, 90], job={"replica_num": 2, "submission_num": 3}),
    fleets=(local(HOST),),
)
situation(
    "a run's only job takes a free host, and the run along",
    queue,
    asks(run={"message": "waiting", "due_at": NOW + MINUTE}, alone=True),
    fleets=(local(HOST),),
)
situation(
    "a run's only job takes a free host, and its run is overdue",
    queue,
    asks(run={"due_at": NOW}, alone=True),
    fleets=(local(HOST),),
)
situation(
    "a job takes its share of a host", queue, asks(resources={"cpu": 2, "memory": "4GB.."}), fleets=(local(SPLIT),)
)
situation(
    "a job takes a machine that is on its way",
    queue,
    asks(),
    fleets=(cloud(b.machine(0, CLOUD, deadline=NOW + MINUTE, **YOUNG)),),
)
situation(
    "a job takes a machine that is on its way and has no deadline",
    queue,
    asks(),
    fleets=(cloud(b.machine(0, CLOUD, **YOUNG)),),
)
situation(
    "a job doesn't wait for a machine whose offer has failed for it",
    queue,
    asks(job={"attempts": (TRIED,)}),
    fleets=(cloud(b.machine(0, CLOUD, **YOUNG)),),
    offers=(b.offer(), b.offer("m2", 2.0)),
)
situation(
    "a job has a machine bought for it",
    queue,
    asks(tags={"team": "b", "run": "1"}, idle_duration="10m"),
    fleets=(cloud(env={"A": 1}, tags={"team": "a", "fleet": "1"}),),
    offers=(b.offer(), b.offer("m2", 2.0)),
)
situation(
    "a job has a machine bought that it shares",
    queue,
    asks(resources={"cpu": 2, "memory": "4GB.."}),
    fleets=(cloud(blocks=2),),
    offers=(b.offer(),),
)
situation(
    "a job has a machine bought where one is for one job",
    queue,
    asks(),
    fleets=(cloud(),),
    offers=(b.offer(backend="runpod"),),
)
situation(
    "a job has a machine bought in the zones that it asks for",
    queue,
    asks(availability_zones=["eu-B"]),
    fleets=(cloud(),),
    offers=(b.offer(availability_zones=("eu-a", "eu-b")),),
)
situation(
    "two jobs share what one of them has bought",
    queue,
    asks("a", resources={"cpu": 2, "memory": "4GB.."}),
    asks("b", resources={"cpu": 2, "memory": "4GB.."}),
    fleets=(cloud(blocks=2),),
    offers=(b.offer(),),
)
situation(
    "jobs wait for a host that is taken, the first looks again soon",
    queue,
    asks("a"),
    asks("b"),
    asks("c"),
    fleets=(local(HOST),),
)
FULL = b.holding(HOST, b.job(b.run("other")))
situation(
    "a job that knows what it waits for",
    queue,
    asks(job={"message": "waiting for free capacity in fleet `local`", "due_at": NOW + SECOND}),
    fleets=(local(FULL),),
)
situation(
    "a job that knows what it waits for and when to look",
    queue,
    asks(job={"message": "waiting for free capacity in fleet `local`", "due_at": NOW + MINUTE}),
    fleets=(local(FULL),),
)
situation(
    "a job that would be looked at too late",
    queue,
    asks(job={"message": "waiting for free capacity in fleet `local`", "due_at": NOW + MINUTE + 1}),
    fleets=(local(FULL),),
)
situation(
    "a machine is bought of a backend that says nothing of itself",
    queue,
    asks(),
    fleets=(cloud(),),
    offers=(b.offer(backend="nimbus"),),
)
situation(
    "a job that knows what it waits for and is due",
    queue,
    asks(job={"message": "waiting for free capacity in fleet `local`", "due_at": NOW}),
    fleets=(local(FULL),),
)
situation("a job that waits for a host to report", queue, asks(), fleets=(local(HOST.with_(unreachable=True)),))
situation("a job that waits for a host to be healthy", queue, asks(), fleets=(local(HOST.with_(health="failure")),))
situation("a job that waits for a host's resources", queue, asks(), fleets=(local(b.host(0, LOCAL, **YOUNG)),))
situation(
    "a job that waits for room",
    queue,
    asks(),
    fleets=(
        cloud(
            b.holding(b.machine(0, CLOUD, offer=b.offer("small", has=b.resources(1, 1))), b.job(b.run("other"))),
            nodes="0..1",
        ),
    ),
    offers=(b.offer(),),
)
situation(
    "jobs of a run that ends are its own affair",
    queue,
    asks(run={"status": RunStatus.terminating}),
    fleets=(local(HOST),),
)
situation("jobs of a run that is over are nobody's", queue, asks(run={"status": RunStatus.done}), fleets=(local(HOST),))

situation("nowhere to run: no fleet", queue, asks())
situation(
    "nowhere to run: not the fleet that is named", queue, asks(fleets=["mine", "yours"]), fleets=(local(HOST), cloud())
)
situation("nowhere to run: a fleet without hosts", queue, asks(), fleets=(local(),))
situation(
    "nowhere to run: a host that is too small in two ways",
    queue,
    asks(resources={"cpu": 64, "memory": "1TB"}),
    fleets=(local(HOST),),
)
situation("nowhere to run: a host without GPUs", queue, asks(**GPU), fleets=(local(HOST),))
situation(
    "nowhere to run: a host without containers",
    queue,
    asks(image="x", privileged=True),
    fleets=(local(HOST.with_(runtimes=("process",))),),
)
situation(
    "nowhere to run: a spot machine in the wrong region",
    queue,
    asks(spot_policy="on-demand", regions=["us"]),
    fleets=(cloud(b.machine(0, CLOUD, offer=b.offer(has=b.resources(spot=True))), nodes="0..1"),),
)
situation(
    "nowhere to run: shares that don't fit exactly",
    queue,
    asks(resources={"cpu": 3, "memory": "4GB.."}),
    fleets=(local(SPLIT),),
)
situation(
    "nowhere to run: too dear a machine",
    queue,
    asks(max_price=0.5),
    fleets=(local(b.host(0, LOCAL, offer=b.offer("h", 1.0, backend="remote"))),),
)
situation(
    "nowhere to run: only what is there may be used",
    queue,
    asks(creation_policy="reuse"),
    fleets=(cloud(),),
    offers=(b.offer(),),
)
situation(
    "nowhere to run: a fleet that never has an instance", queue, asks(), fleets=(cloud(nodes=0),), offers=(b.offer(),)
)
situation(
    "nowhere to run: a fleet that is full of what doesn't fit",
    queue,
    asks(**GPU),
    fleets=(cloud(b.machine(0, CLOUD), nodes=1),),
    offers=(b.offer(has=b.resources(gpus=1)),),
)
situation(
    "nowhere to run: every offer has failed",
    queue,
    asks(job={"attempts": (TRIED, TRIED.with_(error="no quota"))}),
    fleets=(cloud(),),
    offers=(b.offer(),),
)
situation(
    "nowhere to run: offers failed in many ways",
    queue,
    asks(job={"attempts": tuple(TRIED.with_(error=f"{n}" * 250) for n in range(5))}),
    fleets=(cloud(),),
    offers=(b.offer(),),
)
situation(
    "nowhere to run: nothing is available",
    queue,
    asks(),
    fleets=(cloud(),),
    offers=(b.offer(availability=Availability.not_available),),
)
situation("nowhere to run: no backend has offers", queue, asks(), fleets=(cloud(),))
situation(
    "nowhere to run: offers are too dear",
    queue,
    asks(max_price=0.5),
    fleets=(cloud(),),
    offers=(b.offer(price=2.0), b.offer("m2", 1.5)),
)
situation("nowhere to run: no offer has GPUs", queue, asks(**GPU), fleets=(cloud(),), offers=(b.offer(),))
situation(
    "nowhere to run: no offer has such GPUs",
    queue,
    asks(resources={"gpu": "H100:8"}),
    fleets=(cloud(),),
    offers=(b.offer(has=b.resources(gpus=8)), b.offer("m2", has=b.resources(gpus=1, gpu="H100"))),
)
situation(
    "nowhere to run: no offer has so much memory",
    queue,
    asks(resources={"memory": "1TB.."}),
    fleets=(cloud(),),
    offers=(b.offer(),),
)
situation("nowhere to run: no offer in the region", queue, asks(regions=["us"]), fleets=(cloud(),), offers=(b.offer(),))
situation("nowhere to run: no spot offer", queue, asks(spot_policy="spot"), fleets=(cloud(),), offers=(b.offer(),))
situation(
    "nowhere to run: the fleet forbids it",
    queue,
    asks(spot_policy="spot"),
    fleets=(cloud(spot_policy="on-demand"),),
    offers=(b.offer(),),
)
situation(
    "nowhere to run: the fleet is in another region",
    queue,
    asks(regions=["us"]),
    fleets=(cloud(regions=["eu"]),),
    offers=(b.offer(),),
)
situation(
    "nowhere to run: many fleets",
    queue,
    asks(**GPU),
    fleets=tuple(b.view(of, b.host(0, of)) for of in map(b.fleet, "abcde")),
)

HALF = b.machine(0, CLOUD, total_blocks=2, offer=b.offer(blocks=2, total_blocks=2, availability_zones=("eu-a",)))
PART = {"resources": {"cpu": 2, "memory": "4GB.."}}


def share(name: str, there: Instance = HALF, **config: Any) -> None:
    """A machine that is cut in two, in a fleet that has no room for another."""
    situation(f"a share of a machine: {name}", queue, asks(**PART, **config), fleets=(cloud(there, nodes="0..1"),))


share("it fits")
share("in another region", regions=["us"])
share("of another backend", backends=["gcp"])
share("in another zone", availability_zones=["eu-b"])
share("of another type", instance_types=["m2"])
share("on another market", spot_policy="spot")
share("cheap enough", max_price=0.5)
share("too dear", max_price=0.4)
share("without containers", HALF.with_(runtimes=("process",)), image="x")
share("with containers", HALF.with_(runtimes=("process", "docker")), image="x")
share("half taken", b.holding(HALF, b.job(b.run("other")), 0))
share("all taken", b.holding(HALF, b.job(b.run("other"))))

ANYTHING = cloud(spot_policy="auto")
for word, wanted, sold in (
    ("spot machines", {"spot_policy": "spot"}, b.offer()),
    ("on-demand machines", {"spot_policy": "on-demand"}, b.offer(has=b.resources(spot=True))),
    ("that backend", {"backends": ["gcp"]}, b.offer()),
    ("that type", {"instance_types": ["m2"]}, b.offer()),
    ("that zone", {"availability_zones": ["eu-b"]}, b.offer(availability_zones=("eu-a",))),
    ("so many CPUs", {"resources": {"cpu": "99.."}}, b.offer()),
    ("so large a disk", {"resources": {"disk": "99TB.."}}, b.offer()),
    ("all that at once", {"resources": {"cpu": "99..", "memory": "9TB.."}}, b.offer()),
):
    situation(f"nobody sells {word}", queue, asks(**wanted), fleets=(ANYTHING,), offers=(sold,))
HALVES = {"resources": {"cpu": "1..2", "memory": "1GB..8GB"}}
situation(
    "two jobs that ask for the same share the machine that the first has bought",
    queue,
    asks("a", **HALVES),
    asks("b", **HALVES),
    fleets=(cloud(blocks=2),),
    offers=(b.offer(),),
)
for more in (0, 1):
    keys = (f"{b.offer().key}{num}" for num in range(MOST_TRIED - 1 + more))
    situation(
        f"a job for which {MOST_TRIED - 1 + more} offers have failed",
        queue,
        asks(job={"attempts": tuple(Attempt(offer_key=key, error="sold out") for key in keys)}),
        fleets=(cloud(),),
        offers=(b.offer(),),
    )

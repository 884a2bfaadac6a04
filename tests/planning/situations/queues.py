"""A look at a project's queue: who gets a place, who waits for one, and who never will."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import Offer
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.planning.situations.kit import BEFORE, NOW, Decided, situation
from tests.world import nouns as b

CLOUD, LOCAL = b.fleet("cloud"), b.fleet("local")


def queued(
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
GPU = {"resources": {"gpu": 1}}

situation(
    "a job that was submitted again takes a free host",
    queue,
    queued(ports=[80, 90], job={"replica_num": 2, "submission_num": 3}),
    fleets=(local(HOST),),
)
situation(
    "a run's only job takes a free host, and its run is overdue",
    queue,
    queued(run={"due_at": NOW}, alone=True),
    fleets=(local(HOST),),
)
situation(
    "a job has a machine bought that it shares",
    queue,
    queued(resources={"cpu": 2, "memory": "4GB.."}),
    fleets=(cloud(blocks=2),),
    offers=(b.offer(),),
    comes_to="cloud: next_instance_num; new instance cloud-0 pending; a-0-0 submitted → provisioning; Create",
)
situation(
    "a job that waits for room",
    queue,
    queued(),
    fleets=(
        cloud(
            b.holding(b.machine(0, CLOUD, offer=b.offer("small", has=b.resources(1, 1))), b.job(b.run("other"))),
            nodes="0..1",
        ),
    ),
    offers=(b.offer(),),
    comes_to="a-0-0: message; again in 60 s",
)

situation(
    "nowhere to run: too dear a machine",
    queue,
    queued(max_price=0.5),
    fleets=(local(b.host(0, LOCAL, offer=b.offer("h", 1.0, backend="remote"))),),
    comes_to="a-0-0 submitted → failed (failed_to_start_due_to_no_capacity)",
)
situation(
    "nowhere to run: offers are too dear",
    queue,
    queued(max_price=0.5),
    fleets=(cloud(),),
    offers=(b.offer(price=2.0), b.offer("m2", 1.5)),
    comes_to="a-0-0 submitted → failed (failed_to_start_due_to_no_capacity)",
)
situation(
    "nowhere to run: no offer in the region", queue, queued(regions=["us"]), fleets=(cloud(),), offers=(b.offer(),)
)
situation(
    "nowhere to run: no spot offer",
    queue,
    queued(spot_policy="spot"),
    fleets=(cloud(),),
    offers=(b.offer(),),
    comes_to="a-0-0 submitted → failed (failed_to_start_due_to_no_capacity)",
)
situation(
    "nowhere to run: the fleet is in another region",
    queue,
    queued(regions=["us"]),
    fleets=(cloud(regions=["eu"]),),
    offers=(b.offer(),),
)
situation(
    "nowhere to run: many fleets",
    queue,
    queued(**GPU),
    fleets=tuple(b.view(of, b.host(0, of)) for of in map(b.fleet, "abcde")),
)

HALF = b.machine(0, CLOUD, total_blocks=2, offer=b.offer(blocks=2, total_blocks=2, availability_zones=("eu-a",)))
PART = {"resources": {"cpu": 2, "memory": "4GB.."}}


situation(
    "a share of a machine: it fits",
    queue,
    queued(**PART),
    fleets=(cloud(HALF, nodes="0..1"),),
)
situation(
    "a share of a machine: without containers",
    queue,
    queued(**PART, image="x"),
    fleets=(cloud(HALF.with_(runtimes=("process",)), nodes="0..1"),),
    comes_to="a-0-0 submitted → failed (failed_to_start_due_to_no_capacity)",
)

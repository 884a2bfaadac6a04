"""The pure core: placement decisions a second. A thousand jobs alike meet as many free hosts, and then too few; and a
thousand jobs of which no two want the same meet 150 hosts and a fleet that may buy."""

from __future__ import annotations

import gc
import random
from functools import partial

from chalicelib.domain.jobs import Job
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.bench.measure import cpu_ms, report
from tests.bench.offers import catalog
from tests.world.nouns import fleet, host, queued, resources, run_spec, view, waiting

JOBS = 1000
HOSTS = 150
MAY_BUY = 100
OFFERS = 2000


def alike(hosts: int) -> QueueSnapshot:
    pool = fleet()
    instances = [host(num, pool) for num in range(hosts)]
    spec = run_spec()
    ssh_config = {"hosts": [instance.name for instance in instances]}
    return waiting(
        *(queued(f"run-{n}", spec) for n in range(JOBS)), fleets=(view(pool, *instances, ssh_config=ssh_config),)
    )


def unlike(seed: int = 1) -> QueueSnapshot:
    """Every job with its own sizes, regions and price; every host a little different from the next."""
    rng = random.Random(seed)
    pool, cloud = fleet(), fleet("cloud")
    instances = [
        host(n, pool, has=resources(cpus=rng.choice((8, 16, 32, 64)), gb=64 + n, gpus=rng.choice((0, 0, 1, 4, 8))))
        for n in range(HOSTS)
    ]
    ssh_config = {"hosts": [instance.name for instance in instances]}
    views = (
        view(pool, *instances, ssh_config=ssh_config),
        view(cloud, nodes=f"0..{MAY_BUY}", resources={"cpu": "2..", "memory": "4GB.."}, max_price=40),
    )
    jobs = [_job(number, rng) for number in range(JOBS)]
    return waiting(*jobs, fleets=views, offers=tuple(catalog(OFFERS, seed)))


def _job(number: int, rng: random.Random) -> QueuedJob:
    resources = {"cpu": f"{rng.choice((1, 2, 4, 8, 16))}..", "memory": f"{rng.randint(1, 48)}GB..", "disk": None}
    if rng.random() < 0.5:
        resources["gpu"] = f"{rng.choice(('A100', 'H100', '24GB..', '40GB..'))}:{rng.choice(('1', '1..4', '2..'))}"
    regions = [f"region-{rng.randrange(40)}" for _ in range(20)] if rng.random() < 0.5 else None
    spec = run_spec(resources=resources, regions=regions, max_price=20 + number / 100)
    return queued(f"run-{number}", spec)


def main() -> None:
    snapshots = (("alike", alike(JOBS)), ("few-hosts", alike(HOSTS)), ("unlike", unlike()))
    gc.freeze()  # both as `dstack server` has them
    gc.set_threshold(10_000)
    for name, snapshot in snapshots:
        saved = [noun for step in decide_queue(snapshot).steps for noun in step.saves if isinstance(noun, Job)]
        taken = cpu_ms(partial(decide_queue, snapshot))
        report(
            f"placement-{name}",
            placed=sum(job.status == "provisioning" for job in saved),
            failed=sum(job.status == "failed" for job in saved),
            decide_cpu_ms=taken,
            decisions_per_cpu_s=[JOBS / ms * 1000 for ms in taken],
        )


if __name__ == "__main__":
    main()

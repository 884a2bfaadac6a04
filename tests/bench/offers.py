"""The catalog in the pure core: 50,000 offers filtered, priced, sorted, the first 50."""

from __future__ import annotations

import random
from itertools import count

from chalicelib.domain.offers import Disk, Gpu, InstanceType, Offer, Resources
from chalicelib.domain.specs.resources import ResourcesSpec
from tests.bench.measure import cpu_ms, report

GPUS = [
    ("T4", 15360),
    ("L4", 24576),
    ("A10", 24576),
    ("A100", 40960),
    ("A100", 81920),
    ("H100", 81920),
    ("H200", 144_384),
]


def catalog(size: int = 50_000, seed: int = 1) -> list[Offer]:
    """Some thousand shapes in some dozen regions of ten backends, priced at random."""
    rng = random.Random(seed)
    shapes = []
    for number in range(1200):
        name, memory = rng.choice(GPUS)
        gpus = tuple(Gpu(name=name, memory_mib=memory, vendor="nvidia") for _ in range(rng.choice((0, 0, 1, 2, 4, 8))))
        cpus = rng.choice((2, 4, 8, 16, 32, 64, 96, 192))
        disk = Disk(size_mib=102_400 * rng.choice((1, 2, 4)))
        shapes.append((f"type-{number}", cpus, cpus * rng.choice((2, 4, 8)) * 1024, gpus, disk))
    offers = []
    backends = ("aws", "gcp", "azure", "oci", "nebius", "lambda", "runpod", "vastai", "crusoe", "cudo")
    for number in range(size):
        name, cpus, memory, gpus, disk = rng.choice(shapes)
        spot = rng.random() < 0.4
        resources = Resources(cpus=cpus, memory_mib=memory, gpus=gpus, spot=spot, disk=disk, cpu_arch="x86")
        offers.append(
            Offer(
                backend=rng.choice(backends),
                instance=InstanceType(name=name, resources=resources),
                region=f"region-{number % 40}",
                price=round(0.05 * cpus + 1.5 * len(gpus) * rng.uniform(0.5, 1.5), 4),
            )
        )
    return offers


def main() -> None:
    from chalicelib.planning.matching.machine_index import Query
    from chalicelib.planning.matching.offer_book import OfferBook

    book = OfferBook(catalog(), taken_at=0)
    resources = ResourcesSpec.model_validate({"gpu": "24GB..80GB:1..4", "cpu": "8..", "memory": "32GB.."})
    prices = count(40.0, 0.01)  # a new question each time: each is asked for the first time

    def match() -> int:
        return book.match(Query(resources=resources, max_price=next(prices)), limit=50)[1]

    report("offers", offers=len(book), matching=match(), match_cpu_ms=cpu_ms(match))


if __name__ == "__main__":
    main()

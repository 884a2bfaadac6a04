"""The catalog in the pure core: the best and the dearest 50 of 100,000 offers, and all of their GPUs in groups."""

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


def clouds(size: int = 100_000, seed: int = 1) -> list[Offer]:
    """Offers as clouds have them: eight, in regions of their own, an eighth of whose types have GPUs. A type is sold in
    half of the regions, on demand and as spot."""
    rng = random.Random(seed)
    shapes = {offer.instance.name: offer.instance for offer in catalog(20_000)}
    plain = [each for each in shapes.values() if not each.resources.gpus]
    cards = [each for each in shapes.values() if each.resources.gpus]
    offers = []
    while len(offers) < size:
        backend = rng.choice(("aws", "gcp", "azure", "oci", "nebius", "lambda", "verda", "crusoe"))
        shape, price = rng.choice(cards if rng.random() < 1 / 8 else plain), rng.uniform(0.5, 1.5)
        for region in rng.sample(range(30), 15):
            for spot, rate in ((False, 1.0), (True, 0.4)):
                instance = shape.with_(resources=shape.resources.with_(spot=spot))
                cost = round(price * rate * (0.05 * shape.resources.cpus + 1.5 * len(shape.resources.gpus)), 4)
                offers.append(Offer(backend=backend, instance=instance, region=f"{backend}-{region}", price=cost))
    return offers[:size]


def main() -> None:
    from chalicelib.planning.matching.gpu_groups import grouped
    from chalicelib.planning.matching.machine_index import Query
    from chalicelib.planning.matching.offer_book import OfferBook

    book = OfferBook(clouds(), taken_at=0)
    resources = ResourcesSpec.model_validate({"gpu": "24GB..80GB:1..4", "cpu": "8..", "memory": "32GB.."})
    prices = count(40.0, 0.01)  # a new question each time: each is asked for the first time

    def match() -> int:
        return book.match(Query(resources=resources, max_price=next(prices)), limit=50)[1]

    every = ResourcesSpec.model_validate({"gpu": "1.."})

    def group() -> int:
        query = Query(resources=every, spot=None, max_price=1_000 + next(prices))
        return len(grouped(book.gpu_kinds(query), frozenset({"backend"})))

    def dearest() -> int:
        return len(book.match(Query(resources=resources, spot=None, max_price=1_000 + next(prices)), dearest=True)[0])

    measured = {"match": cpu_ms(match), "group": cpu_ms(group), "dearest": cpu_ms(dearest)}
    report("offers", offers=len(book), matching=match(), **{f"{name}_cpu_ms": each for name, each in measured.items()})


if __name__ == "__main__":
    main()

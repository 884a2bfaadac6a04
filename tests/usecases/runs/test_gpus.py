"""Available GPUs, grouped as requested."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.offers import Availability
from chalicelib.usecases.runs.gpus import GpuGroup, grouped
from tests.world import nouns as b


def offer(name: str, price: float, gpus: int, gpu: str = "A100", spot: bool = False, **fields: Any) -> Any:
    return b.offer(name, price, has=b.resources(gpus=gpus, gpu=gpu, spot=spot), **fields)


OFFERS = [
    offer("a1", 1.0, 1),
    offer("a3", 2.0, 3, region="us", availability=Availability.no_quota),
    offer("a1-spot", 0.5, 1, spot=True),
    offer("h8", 40.0, 8, "H100", backend="runpod"),
    b.offer("none", 0.1),
]


def test_a_group_is_all_that_is_offered_of_one_kind() -> None:
    first, second = grouped(OFFERS, frozenset())
    assert first == GpuGroup(
        gpu=OFFERS[0].instance.resources.gpus[0],
        backends={"aws": None},
        regions={"eu": None, "us": None},
        availability={"available": None, "no_quota": None},
        markets={"on-demand": None, "spot": None},
        counts=[1, 3, 1],
        prices=[1.0, 0.666667, 0.5],
        offer_prices=[1.0, 2.0, 0.5],
    )
    assert (second.gpu.name, second.prices, second.backends) == ("H100", [5.0], {"runpod": None})
    assert (first.backend, first.region) == (None, None)


@pytest.mark.parametrize(
    ("by", "want"),
    [
        ({"backend"}, [("aws", None, [1, 3, 1]), ("runpod", None, [8])]),
        ({"region"}, [(None, "eu", [1, 1]), (None, "us", [3]), (None, "eu", [8])]),
        ({"count"}, [(None, None, [1, 1]), (None, None, [3]), (None, None, [8])]),
        ({"backend", "region"}, [("aws", "eu", [1, 1]), ("aws", "us", [3]), ("runpod", "eu", [8])]),
    ],
)
def test_groups_are_parted_as_asked(by: set[str], want: list[tuple[str | None, str | None, list[int]]]) -> None:
    assert [(group.backend, group.region, group.counts) for group in grouped(OFFERS, frozenset(by))] == want


def test_memory_and_vendor_part_kinds_too() -> None:
    small = offer("small", 1.0, 1)
    gpu = small.instance.resources.gpus[0]
    others = [gpu.with_(memory_mib=40960), gpu.with_(vendor="amd")]
    found = [
        small.with_(instance=small.instance.with_(resources=small.instance.resources.with_(gpus=(each,))))
        for each in others
    ]
    assert [group.gpu for group in grouped([small, *found], frozenset())] == [gpu, *others]

"""GPUs on offer, grouped as requested."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.offers import Availability
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.planning.matching.gpu_groups import GpuGroup, grouped, one_by_one
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import AccountOffers, OfferBook
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
    first, second = grouped(one_by_one(OFFERS), frozenset())
    assert first == GpuGroup(
        gpu=OFFERS[0].instance.resources.gpus[0],
        backends={"aws": None},
        regions={"eu": None, "us": None},
        availability={"available": None, "no_quota": None},
        markets={"on-demand": None, "spot": None},
        counts=[1, 3, 1],
        prices=[1.0, 1.0, 2.0 / 3, 2.0 / 3, 0.5, 0.5],
        offer_prices=[1.0, 1.0, 2.0, 2.0, 0.5, 0.5],
    )
    assert (second.gpu.name, second.prices, second.backends) == ("H100", [5.0, 5.0], {"runpod": None})
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
    assert [(group.backend, group.region, group.counts) for group in grouped(one_by_one(OFFERS), frozenset(by))] == want


def test_memory_and_vendor_part_kinds_too() -> None:
    small = offer("small", 1.0, 1)
    gpu = small.instance.resources.gpus[0]
    others = [gpu.with_(memory_mib=40960), gpu.with_(vendor="amd")]
    found = [
        small.with_(instance=small.instance.with_(resources=small.instance.resources.with_(gpus=(each,))))
        for each in others
    ]
    assert [group.gpu for group in grouped(one_by_one([small, *found]), frozenset())] == [gpu, *others]


CHOICES = st.tuples(
    st.sampled_from(("A100", "H100")),
    st.sampled_from((0, 1, 1, 2)),
    st.sampled_from(("aws", "gcp")),
    st.sampled_from("ab"),
    st.booleans(),
    st.sampled_from(list(Availability)),
    st.sampled_from((1.0, 2.0, 3.5)),
)


@given(st.lists(st.lists(CHOICES, max_size=12), min_size=1, max_size=3), st.sampled_from((None, 2.0)))
@pytest.mark.slow
def test_a_book_groups_as_if_each_offer_were_added(accounts: list[list[Any]], most: float | None) -> None:
    found = [
        [
            offer(f"m{row}", price, gpus, gpu, spot, backend=backend, region=region, availability=availability)
            for row, (gpu, gpus, backend, region, spot, availability, price) in enumerate(rows)
        ]
        for rows in accounts
    ]
    query = Query(ResourcesSpec(), spot=None, max_price=most)
    book = OfferBook(accounts=[AccountOffers(each) for each in found])
    every, _ = book.match(query, limit=100)
    for by in ((), ("backend",), ("region", "backend"), ("count",)):
        whole, quick = (grouped(each, frozenset(by)) for each in (one_by_one(every), book.gpu_kinds(query)))
        assert sorted(map(shown, quick)) == sorted(map(shown, whole))


def shown(group: GpuGroup) -> tuple[Any, ...]:
    """What a client is shown, but for the order of names."""
    spans = [(min(each), max(each)) for each in (group.counts, group.prices, group.offer_prices)]
    names = [sorted(each) for each in (group.backends, group.regions, group.availability, group.markets)]
    return (group.gpu.name, group.backend or "", group.region or "", spans, names)


def test_names_in_a_group_begin_with_the_cheapest() -> None:
    accounts = [AccountOffers([offer("x", 3.0, 1)]), AccountOffers([offer("y", 2.0, 1, backend="runpod")])]
    (group,) = grouped(OfferBook(accounts=accounts).gpu_kinds(Query(ResourcesSpec())), frozenset())
    assert list(group.backends) == ["runpod", "aws"]

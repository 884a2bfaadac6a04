"""Disks that are made to order: as large as asked for, no larger, and at their price."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import NO_TERMS, Disk, DiskTerms, Offer, OfferTerms
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.requirements import fleet_query, merged_fleet, requirements_of
from chalicelib.planning.placing.plan_offers import plan_offers
from chalicelib.planning.placing.queue import decide_queue
from tests.world import nouns as b


def elastic(most_gib: float, gib_hour: float) -> OfferTerms:
    return OfferTerms(disk=DiskTerms(most_gib=most_gib, gib_hour=gib_hour))


DISK = elastic(16_384, 0.001)
ELASTIC = b.offer("elastic", 1.0, terms=DISK)
DEAR = b.offer("dear", 1.5, region="us", terms=elastic(500, 0.0001))
FIXED = b.offer("fixed", 1.2)
BOOK = OfferBook((ELASTIC, DEAR, FIXED))


def query(disk: Any, **config: Any) -> Query:
    spec = b.run_spec(resources={"disk": disk}, **config)
    return requirements_of(spec, b.job_spec(spec)).query


def found(disk: Any, **config: Any) -> list[tuple[str, float, float]]:
    """What is offered: name, GiB of its disk, price."""
    offers, total = BOOK.match(query(disk, **config), 9)
    assert total == len(offers)
    return [(each.instance.name, each.instance.resources.disk.size_mib / 1024, each.price) for each in offers]


@pytest.mark.parametrize(
    ("disk", "want"),
    [
        ("100GB..", [("elastic", 100, 1.0), ("fixed", 100, 1.2), ("dear", 100, 1.5)]),
        ("50GB..", [("elastic", 100, 1.0), ("fixed", 100, 1.2), ("dear", 100, 1.5)]),
        ("200GB..", [("elastic", 200, 1.1), ("dear", 200, 1.51)]),
        ("200GB..400GB", [("elastic", 200, 1.1), ("dear", 200, 1.51)]),
        ("250GB", [("elastic", 250, 1.15), ("dear", 250, 1.515)]),
        ("700GB..", [("elastic", 700, 1.6)]),
        ("500GB..", [("elastic", 500, 1.4), ("dear", 500, 1.54)]),
        ("..80GB", []),
        ("16384GB..", [("elastic", 16_384, 17.284)]),
        ("16385GB..", []),
    ],
)
def test_the_disk_is_the_smallest_that_fits(disk: str, want: list[tuple[str, float, float]]) -> None:
    assert found(disk) == [(name, size, pytest.approx(price)) for name, size, price in want]


def test_offers_are_ranked_and_capped_by_the_price_with_the_disk() -> None:
    """The cheaper machine has the dearer disk."""
    book = OfferBook((ELASTIC, b.offer("cheap", 0.9, terms=elastic(9_999, 0.01))))
    names = [offer.instance.name for offer in book.match(query("1000GB.."), 9)[0]]
    assert names == ["elastic", "cheap"]
    assert [offer.instance.name for offer in book.match(query("100GB.."), 9)[0]] == ["cheap", "elastic"]
    assert [name for name, _, _ in found("200GB..", max_price=1.05)] == []
    assert [name for name, _, _ in found("200GB..", max_price=1.2)] == ["elastic"]
    assert BOOK.dearest([query("200GB.."), query("100GB..")]) == pytest.approx(1.51)


def test_queries_for_different_disks_are_answered_each_with_its_own() -> None:
    offers, total = BOOK.match_any([query("200GB.."), query("300GB..", instance_types=["elastic"])], 9)
    assert [(each.instance.name, each.instance.resources.disk.size_mib // 1024) for each in offers] == [
        ("elastic", 200),
        ("elastic", 300),
        ("dear", 200),
    ]
    assert total == 3


def test_what_is_bought_has_the_disk_that_was_offered() -> None:
    item = b.queued("train", b.run_spec(resources={"disk": "300GB.."}))
    snapshot = b.waiting(item, fleets=(b.view(b.fleet("cloud"), nodes="0..2"),), offers=(FIXED, ELASTIC))
    plan = decide_queue(snapshot)
    assert b.lint(snapshot, plan) == []
    (made,) = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    assert made.offer == ELASTIC.sized(300) and made.offer.price == pytest.approx(1.2)


def test_a_fleet_decides_with_the_run_how_large_the_disk_is() -> None:
    spec = b.run_spec(resources={"disk": "200GB.."})
    for fleet, size in (({"resources": {"disk": "600GB.."}}, 600), ({}, 200)):
        offers, _, _ = plan_offers(b.requirements(spec), [b.view(nodes="0..2", **fleet)], BOOK, 9)
        assert {offer.instance.resources.disk.size_mib // 1024 for offer in offers} == {size}


def test_a_machine_that_is_cut_into_blocks_has_the_disk_of_its_fleet() -> None:
    query_of_fleet = fleet_query(merged_fleet(b.fleet_spec(nodes=1, blocks=4, resources={"disk": "400GB..", "cpu": 4})))
    small = query_of_fleet._replace(
        resources=b.run_spec(resources={"cpu": 1, "memory": "2GB.."}).configuration.resources
    )
    (machine,) = OfferBook((ELASTIC,)).machines(small, 9)
    offer: Offer = machine[0]
    assert offer.instance.resources.disk.size_mib == 400 * 1024 and offer.price == pytest.approx(1.3)
    assert machine[1:] == (1, 4)


@pytest.mark.slow
def test_a_shelf_for_other_disks_is_that_of_offers_with_them() -> None:
    """Prices, order, shares and what is reserved, of many kinds of which only some are made to order."""
    kinds = [
        b.offer(
            f"k{n % 7}",
            1 + n % 5 / 10,
            region=f"r{n % 3}",
            has=b.resources(2 + n % 3, 8, disk=Disk(size_mib=(100 + n % 2 * 60) * 1024)),
            terms=elastic(200 + n % 3 * 300, n % 6 / 1000) if n % 4 else NO_TERMS,
        )
        for n in range(60)
    ]
    for size in (120, 150.5, 200, 333, 800, 900):
        wanted = query(f"{size}GB..")
        for blocks in (1, 2):
            want, total = OfferBook([offer.sized(size) for offer in kinds]).match(wanted._replace(blocks=blocks), 99)
            offers, count = OfferBook(kinds).match(wanted._replace(blocks=blocks), 99)
            assert [offer.price for offer in offers] == [offer.price for offer in want] and count == total
            assert sorted(map(repr, offers)) == sorted(map(repr, want))
        assert OfferBook(kinds).dearest([wanted]) == OfferBook([each.sized(size) for each in kinds]).dearest([wanted])


def test_another_size_of_disk_makes_only_the_offers_that_are_read() -> None:
    made = 0

    class Counted(Offer):
        def sized(self, gib: float) -> Offer:
            nonlocal made
            made += gib > 100
            return super().sized(gib)

    of_a_kind = [Counted(**{**vars(ELASTIC), "region": f"r{n}"}) for n in range(500)]
    assert len(OfferBook(of_a_kind).match(query("700GB.."), 3)[0]) == 3
    assert made < 10

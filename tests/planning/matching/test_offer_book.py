"""The offer book, what fits what, how machines are cut, and what fleet and run both allow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.gpu_names import vendor_of
from chalicelib.domain.offers import CONTAINER, Availability, Disk, Gpu, Offer, Resources
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.fitting import blocks_needed, misfits, share, total_blocks
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import AccountOffers, OfferBook
from chalicelib.planning.matching.requirements import combined, idle_seconds, requirements_of
from chalicelib.planning.placing.plan_offers import fleet_offers, plan_offers
from tests.world import nouns as b

ANY = ResourcesSpec.model_validate({"cpu": "1..", "memory": "0GB..", "disk": None})


def needs(**resources: Any) -> ResourcesSpec:
    return ResourcesSpec.model_validate({"cpu": "1..", "memory": "0GB..", "disk": None, **resources})


# --- the book --------------------------------------------------------------------------------------------------------


def test_usable_offers_come_first_cheapest_first_and_ties_keep_their_order() -> None:
    offers = [
        b.offer("dear", 3.0),
        b.offer("sold-out", 0.1, availability=Availability.not_available),
        b.offer("cheap", 1.0),
        b.offer("also-cheap", 1.0),
    ]
    found, total = OfferBook(offers).match(Query(ANY))
    assert [offer.instance.name for offer in found] == ["cheap", "also-cheap", "dear", "sold-out"]
    assert total == 4


def test_the_total_counts_what_the_limit_cuts_off() -> None:
    found, total = OfferBook(b.offer(f"m{n}") for n in range(9)).match(Query(ANY), limit=2)
    assert (len(found), total) == (2, 9)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"max_price": 1.0}, ["a"]),
        ({"backends": frozenset({"gcp"})}, ["b"]),
        ({"regions": frozenset({"us-1"})}, ["b"]),
        ({"zones": frozenset({"us-1a"})}, ["a", "b"]),  # an offer that names no zone may be anywhere
        ({"zones": frozenset({"us-1b"})}, ["a"]),
        ({"instance_types": frozenset({"b"})}, ["b"]),
        ({"spot": True}, ["c"]),
        ({"spot": None}, ["a", "b", "c"]),
    ],
)
def test_an_offer_is_filtered_by_each_of_its_sides(query: dict[str, Any], names: list[str]) -> None:
    offers = [
        b.offer("A", 1.0),
        b.offer("B", 2.0, backend="gcp", region="US-1", availability_zones=("US-1a",)),
        b.offer("C", 3.0, has=b.resources(spot=True), region="us-9"),
    ]
    found, _ = OfferBook(offers).match(Query(ANY, **query))
    assert [offer.instance.name.lower() for offer in found] == names


def test_offers_of_several_queries_count_once() -> None:
    book = OfferBook([b.offer("a", 1.0), b.offer("b", 2.0, backend="gcp")])
    aws, both = Query(ANY, backends=frozenset({"aws"})), Query(ANY)
    assert book.match_any((aws, both))[1] == 2


_CATALOGS = st.lists(
    st.lists(
        st.tuples(st.sampled_from((0.5, 1.0, 2.0)), st.booleans(), st.sampled_from((1, 4)), st.sampled_from("ab")),
        max_size=5,
    ),
    min_size=1,
    max_size=4,
)


@given(_CATALOGS, st.integers(0, 6))
@pytest.mark.slow
def test_a_book_of_several_shelves_reads_as_one_of_all_their_offers(
    drawn: list[list[tuple[float, bool, int, str]]], limit: int
) -> None:
    accounts = [
        [
            b.offer(
                f"{number}-{place}",
                price,
                backend=f"cloud-{number}",
                region=region,
                has=b.resources(cpus=cpus, gb=4 * cpus),
                availability=Availability.available if usable else Availability.not_available,
            )
            for place, (price, usable, cpus, region) in enumerate(rows)
        ]
        for number, rows in enumerate(drawn)
    ]
    merged, joined = (
        OfferBook(offer for catalog in accounts for offer in catalog),
        OfferBook(accounts=map(AccountOffers, accounts)),
    )
    small = Query(ANY, regions=frozenset({"a"}), max_price=1.0)
    cut = Query(needs(cpu=1), blocks=4)
    assert len(merged) == len(joined)
    for queries in ((Query(ANY),), (small,), (cut,), (small, cut)):
        assert joined.match_any(queries, limit) == merged.match_any(queries, limit)
        assert joined.machines(queries[0], limit) == merged.machines(queries[0], limit)
        assert joined.dearest(queries) == merged.dearest(queries)
        best = merged.best(queries[0], ())
        assert joined.best(queries[0], ()) == best
        tried = {best[0].key} if best else set()
        assert joined.best(queries[0], tried) == merged.best(queries[0], tried)


def test_the_dearest_is_the_highest_price_of_what_a_job_would_get() -> None:
    book = OfferBook([b.offer("a", 1.0), b.offer("b", 8.0, has=b.resources(cpus=8, gb=32))])
    assert book.dearest([Query(ANY)]) == 8.0
    assert book.dearest([Query(needs(cpu="2.."), blocks=4)]) == 2.0
    assert book.dearest([Query(needs(gpu="9.."))]) is None


def takes(query: Query, offer: Offer) -> bool:
    return (
        query.takes_kind(offer)
        and query.takes_place(offer.backend, offer.region, offer.availability_zones)
        and (query.max_price is None or offer.price <= query.max_price)
        and not list(misfits(query.resources, offer.instance.resources))
    )


def slow_match(offers: list[Offer], query: Query) -> list[Offer]:
    """The meaning of `match`, as plainly as possible."""
    fits = [offer for offer in offers if takes(query, offer)]
    return sorted(fits, key=lambda offer: (not offer.availability.usable, offer.price))


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


kinds = st.builds(
    lambda cpus, gb, disk, gpus, gpu, gpu_gb, vendor, arch, spot: Resources(
        cpus=cpus,
        memory_mib=int(gb * 1024),
        disk=Disk(size_mib=disk * 1024),
        gpus=(Gpu(name=gpu, memory_mib=gpu_gb * 1024 - 300, vendor=vendor),) * gpus,
        cpu_arch=arch,
        spot=spot,
    ),
    cpus=some(2, 4, 8, 12),
    gb=some(4, 7.5, 8, 32),
    disk=some(40, 100, 200),
    gpus=some(0, 0, 1, 2, 4),
    gpu=some("A100", "RTX 4090", "GH200", "v5litepod-4", "Z9"),
    gpu_gb=some(16, 24, 80),
    vendor=some(None, "nvidia"),
    arch=some(None, "x86", "arm"),
    spot=st.booleans(),
)
made = st.builds(
    lambda kind, has, price, backend, region, zones, gone: b.offer(
        f"K{kind}",
        float(price),
        backend=backend,
        region=f"R{region}",
        has=has,
        availability=Availability.no_quota if gone else Availability.available,
        availability_zones=zones,
    ),
    st.integers(0, 3),
    kinds,
    st.integers(1, 20),
    some("aws", "gcp"),
    st.integers(0, 3),
    some(None, None, ("R1a",), ("R1b", "R2a")),
    st.booleans(),
)
GPUS = (None, "0..", "0", "0..1", "1", "1..", "2..4", "A100", "rtx4090,Z9", "24GB..", "16GB..24GB:0..", "nvidia:1..")
GPUS += (
    "google",
    "GH200",
    {"count": "1..", "total_memory": "100GB..200GB"},
    {"compute_capability": "8.0", "count": "0.."},
)
resources = st.builds(
    lambda cpu, memory, gpu, disk: needs(cpu=cpu, memory=memory, gpu=gpu, disk=disk),
    cpu=some("1..", "2..8", "4", "..3", "arm:1..", "x86:2.."),
    memory=some("0GB..", "8GB..", "8GB", "5GB..10GB", "7.5GB"),
    gpu=st.sampled_from(GPUS),
    disk=some(None, None, "100GB..", "50GB..150GB", "40GB"),
)
requested = st.tuples(
    resources,
    some(None, None, True, False),
    some(None, None, 3.0, 10.0),
    some(None, None, frozenset({"aws"})),
    some(None, None, frozenset({"r1"}), frozenset({"r1", "r2"})),
    some(None, None, frozenset({"r1b"})),
    some(None, None, frozenset({"k1", "k2", "k9"})),
).map(lambda parts: Query(*parts))


@given(st.lists(made, max_size=30), st.lists(requested, min_size=1, max_size=4))
@pytest.mark.slow
def test_the_book_answers_as_the_plain_definition_does(offers: list[Offer], queries: list[Query]) -> None:
    book = OfferBook(offers)
    for query in queries:
        want = slow_match(offers, query)
        assert book.match(query, limit=len(offers) + 1) == (tuple(want), len(want))
        assert book.dearest([query]) == max((offer.price for offer in want), default=None)
        usable = [offer for offer in want if offer.availability.usable]
        for tried in (set(), {offer.key for offer in usable[:1]}):
            best = next((offer for offer in usable if offer.key not in tried), None)
            assert book.best(query, tried) == (None if best is None else (best, 1, 1))
    ranked = sorted(offers, key=lambda offer: (not offer.availability.usable, offer.price))
    either = [offer for offer in ranked if any(takes(query, offer) for query in queries)]
    assert book.match_any(queries, 50) == (tuple(either), len(either))
    for limit in (1, 3):
        some, count = book.match_any(queries, limit, dearest=True)
        assert count == len(either)
        assert dearest(some, limit) == dearest(either, limit)


def dearest(offers: Iterable[Offer], limit: int) -> list[Offer]:
    return sorted(offers, key=lambda offer: -offer.price)[:limit]


@given(kinds, resources, some(1, 2, 4, "auto"), st.booleans())
def test_the_fewest_blocks_are_found_without_trying_each(
    has: Resources, wanted: ResourcesSpec, blocks: Any, provisioned: bool
) -> None:
    total = total_blocks(blocks, has)
    if total is not None:
        shares = (share(has, count, total) for count in range(1, total + 1))
        fits = (not list(misfits(wanted, part, provisioned=provisioned)) for part in shares)
        want = next((count for count, fit in enumerate(fits, 1) if fit), 0)
        assert blocks_needed(wanted, has, total, provisioned=provisioned) == want


@given(st.lists(made, max_size=20), resources, some(2, 4, "auto"), some(None, "8..", "12"))
@pytest.mark.slow
def test_machines_that_are_cut_are_found_by_a_share_and_by_the_whole(
    offers: list[Offer], wanted: ResourcesSpec, blocks: Any, machine_cpus: str | None
) -> None:
    query = Query(wanted, None, blocks=blocks, machine=None if machine_cpus is None else needs(cpu=machine_cpus))
    want = []
    for offer in sorted(offers, key=lambda offer: (not offer.availability.usable, offer.price)):
        has = offer.instance.resources
        total = total_blocks(blocks, has)
        fits = query.machine is None or not list(misfits(query.machine, has))
        needed = blocks_needed(wanted, has, total) if total and fits else 0
        want += [(offer, needed, total)] if needed else []
    assert OfferBook(offers).machines(query, 100) == want


# --- fitting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "fits"),
    [
        ("A100", True),
        ("a100:80GB", True),
        ("A100:40GB", False),
        ("H100,A100", True),
        ("2", True),
        ("1", False),
        ("0..", True),
        ("nvidia", True),
        ("amd", False),
        ({"total_memory": "160GB.."}, True),
        ({"total_memory": "161GB.."}, False),
        ({"compute_capability": 8.0}, True),
        ({"compute_capability": 9.0}, False),
    ],
)
def test_accelerators(gpu: Any, fits: bool) -> None:
    assert (not list(misfits(needs(gpu=gpu), b.resources(gpus=2)))) is fits


@pytest.mark.parametrize(
    ("names", "capability"),  # as NVIDIA publishes them
    [
        ("K80", "3.7"),
        ("M60", "5.2"),
        ("P100", "6.0"),
        ("P4 P40", "6.1"),
        ("V100", "7.0"),
        ("T4 T4G RTX6000 RTX8000", "7.5"),
        ("A100 A30", "8.0"),
        ("A2 A10 A10G A16 A40 A4000 A4500 A5000 A6000 RTX3060 RTX3070 RTX3080 RTX3080Ti RTX3090 RTX3090Ti", "8.6"),
        ("L4 L40 L40S RTX4000Ada RTX5000Ada RTX6000Ada RTX4060 RTX4070 RTX4080 RTX4090", "8.9"),
        ("H100 H100NVL H200 H200NVL GH200", "9.0"),
        ("B100 B200 GB200", "10.0"),
        ("B300 GB300", "10.3"),
        ("RTX5070 RTX5080 RTX5090 RTXPRO6000", "12.0"),
    ],
)
def test_a_card_runs_what_is_built_for_its_capability_and_nothing_newer(names: str, capability: str) -> None:
    major, minor = map(int, capability.split("."))
    for name in names.split():
        card = b.resources(gpus=1, gpu=name)
        assert not list(misfits(needs(gpu={"compute_capability": capability}), card))
        assert list(misfits(needs(gpu={"compute_capability": f"{major}.{minor + 1}"}), card))


def test_a_card_counts_as_what_it_is_sold_as() -> None:
    reported = Resources(cpus=4, memory_mib=32_768, gpus=(Gpu(name="A100", memory_mib=81_559, vendor="nvidia"),))
    assert not list(misfits(needs(gpu="A100:80GB"), reported))


def test_exact_means_exactly() -> None:
    assert [m.text for m in misfits(needs(cpu=2), b.resources(cpus=4))] == ["needs 2 CPUs, has 4"]
    assert list(misfits(needs(cpu={"arch": "arm"}), b.resources(cpu_arch="x86")))


def test_arm_is_bought_where_it_is_asked_for_or_comes_with_the_gpu_and_found_anywhere() -> None:
    arm = b.resources(cpu_arch="arm")
    assert [m.hint for m in misfits(needs(), arm)] == ["set `cpu: arm:…` and use an image built for it"]
    assert not list(misfits(needs(cpu="arm:1.."), arm)) and not list(misfits(needs(), arm, provisioned=False))
    grace = Resources(cpus=72, memory_mib=2**19, cpu_arch="arm", gpus=(Gpu(name="GH200", memory_mib=98_304),))
    assert not list(misfits(needs(gpu="GH200"), grace)) and list(misfits(needs(gpu="1"), grace))


@pytest.mark.parametrize(
    ("name", "vendor"),
    [("A100", "nvidia"), ("RTX 4090", "nvidia"), ("MI300X", "amd"), ("v5litepod-4", "google"), ("Z9", None)],
)
def test_who_makes_it(name: str, vendor: str | None) -> None:
    assert vendor_of(name) == vendor


@pytest.mark.parametrize(
    "gpu", [{"name": ["A100"]}, {"vendor": "nvidia"}, {"memory": "40GB.."}, {"compute_capability": "8.0"}]
)
def test_what_cards_must_be_is_asked_only_of_machines_that_have_some(gpu: dict[str, Any]) -> None:
    plain, other = b.offer("plain", 1.0), b.offer("other", 2.0, has=b.resources(gpus=1, gpu="T4", gpu_gb=16))
    amd = b.offer("amd", 3.0, has=Resources(cpus=4, memory_mib=32_768, gpus=(Gpu(name="MI300X", memory_mib=1024),)))
    found, _ = OfferBook([plain, other, amd]).match(Query(needs(gpu={**gpu, "count": "0.."})))
    assert "plain" in [offer.instance.name for offer in found] and amd not in found
    assert not OfferBook([plain]).match(Query(needs(gpu={**gpu, "count": "1.."})))[0]


@pytest.mark.parametrize(
    ("name", "reported", "vendor"), [("A100", None, "nvidia"), ("A100", "amd", "amd"), ("MI300X", None, "amd")]
)
def test_who_made_it_is_known_by_its_name_unless_it_is_told(name: str, reported: Any, vendor: str) -> None:
    card = Resources(cpus=4, memory_mib=32_768, gpus=(Gpu(name=name, memory_mib=81_920, vendor=reported),))
    assert [each for each in ("amd", "nvidia") if not list(misfits(needs(gpu={"vendor": each, "count": 1}), card))] == [
        vendor
    ]


TPU = Resources(cpus=8, memory_mib=2**15, gpus=(Gpu(name="v5litepod-4", memory_mib=2**14, vendor="google"),) * 4)


@pytest.mark.parametrize(
    ("blocks", "has", "total"),
    [
        (1, b.resources(), 1),
        (4, b.resources(cpus=8, gpus=4), 4),
        (3, b.resources(cpus=8), None),
        (2, b.resources(cpus=8, gpus=3), None),
        ("auto", b.resources(cpus=6), 6),
        ("auto", b.resources(cpus=8, gpus=2), 2),
        ("auto", b.resources(cpus=6, gpus=4), None),
        ("auto", TPU, 1),
        (4, TPU, None),
    ],
)
def test_a_machine_is_cut_evenly_or_not_at_all(blocks: Any, has: Resources, total: int | None) -> None:
    assert total_blocks(blocks, has) == total


def test_a_share_has_its_part_and_the_whole_disk() -> None:
    has = b.resources(cpus=8, gb=64, gpus=4)
    part = share(has, 1, 4)
    assert (part.cpus, part.memory_mib, len(part.gpus), part.disk) == (2, 16 * 1024, 1, has.disk)
    assert blocks_needed(needs(gpu=1), has, 4) == 1
    assert blocks_needed(needs(gpu=3, memory="33GB.."), has, 4) == 3
    assert blocks_needed(needs(gpu=5), has, 4) == 0


def test_who_asks_for_no_cpus_gets_the_smallest_share_of_a_machine_with_few() -> None:
    has = b.resources(cpus=2, gb=64, gpus=4)
    assert blocks_needed(needs(cpu="..8", gpu="1.."), has, 4) == 1
    assert blocks_needed(needs(cpu="1..8", gpu="1.."), has, 4) == 2


# --- fleet and run ---------------------------------------------------------------------------------------------------


def together(fleet: dict[str, Any], **config: Any) -> Query | Note:
    spec = b.run_spec(**config)
    return combined(requirements_of(spec, b.job_spec(spec)), b.view(b.fleet("cloud"), nodes="0..2", **fleet))


@pytest.mark.parametrize(
    ("fleet", "run", "field", "want"),
    [
        ({"regions": ["a", "b"]}, {"regions": ["B", "c"]}, "regions", {"b"}),
        ({"backends": ["aws"]}, {}, "backends", {"aws"}),
        ({"max_price": 2}, {"max_price": 3}, "max_price", 2),
        ({"spot_policy": "auto"}, {"spot_policy": "spot"}, "spot", True),
        ({"spot_policy": "spot"}, {"spot_policy": "auto"}, "spot", True),
        ({"spot_policy": "auto"}, {"spot_policy": "auto"}, "spot", None),
        ({"blocks": 4}, {}, "blocks", 4),
    ],
)
def test_fleet_and_run_meet(fleet: dict[str, Any], run: dict[str, Any], field: str, want: Any) -> None:
    query = together(fleet, **run)
    assert isinstance(query, Query)
    assert getattr(query, field) == want


def test_ranges_meet() -> None:
    query = together({"resources": {"cpu": "..8", "gpu": "A100:2.."}}, resources={"cpu": "4..", "gpu": "..4"})
    assert isinstance(query, Query)
    assert (query.resources.cpu.count.min, query.resources.cpu.count.max) == (4, 8)
    assert query.resources.gpu is not None
    assert (query.resources.gpu.name, query.resources.gpu.count.min, query.resources.gpu.count.max) == (("A100",), 2, 4)


@pytest.mark.parametrize(
    ("wanted", "given", "want"),
    [
        ((None, None), 300, 300),
        ((60, None), 300, 60),
        ((60, 30), 300, 30),
        ((-1, 30), 300, 30),
        ((-1, None), 300, None),
    ],
)
def test_the_smaller_idle_time_counts_and_off_yields(
    wanted: tuple[int | None, ...], given: int, want: int | None
) -> None:
    assert idle_seconds(wanted, given, b.offer()) == want
    assert idle_seconds(wanted, given, b.offer(instance_runtime=CONTAINER)) == 0


# --- what plans show -------------------------------------------------------------------------------------------------


def test_a_plan_shows_offers_in_the_order_in_which_they_are_tried() -> None:
    """What is free, what can be bought, and only then what a job would wait for."""
    spec = b.run_spec()
    cloud = b.fleet("cloud")
    free, busy = b.machine(0, cloud), b.holding(b.machine(1, cloud), b.job(b.run("other")))
    book = OfferBook([b.offer("new", 0.1), b.offer("sold", 0.01, availability=Availability.not_available)])
    offers, total, notes = plan_offers(b.requirements(spec), [b.view(cloud, busy, free, nodes="0..3")], book, 50)
    assert [offer.availability.value for offer in offers] == ["idle", "available", "busy", "not_available"]
    assert (total, notes) == (4, [])
    first, *_ = plan_offers(b.requirements(spec), [b.view(cloud, busy, nodes="0..3")], book, 1)
    assert [offer.availability.value for offer in first] == ["available", "busy"], "of what could be bought, one"


def test_a_plan_says_of_each_fleet_why_it_has_nothing() -> None:
    spec = b.run_spec(resources={"gpu": 2})
    views = [b.view(b.fleet("local"), b.host()), b.view(b.fleet("cloud"), nodes="0..1")]
    offers, total, notes = plan_offers(b.requirements(spec), views, OfferBook([b.offer()]), 50)
    assert (offers, total) == ([], 0)
    assert [note.subject for note in notes] == ["fleet `local`", "fleet `cloud`"]
    assert "needs 2 GPUs, has none" in notes[0].text
    assert plan_offers(b.requirements(spec), [], OfferBook(), 50)[2][0].text == "has no fleet"


def test_a_plan_says_that_arm_would_do() -> None:
    spec, book = b.run_spec(), OfferBook([b.offer(has=b.resources(cpu_arch="arm"))])
    offers, _, notes = plan_offers(b.requirements(spec), [b.view(b.fleet("c"), nodes="0..1")], book, 50)
    assert not offers and re.search(r"set `cpu: arm:.*`.*: 1 would match", notes[0].hint)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"resources": {"cpu": "8.."}}, "cpu"),
        ({"resources": {"memory": "64GB.."}}, "memory"),
        ({"instance_types": ["other"]}, "instance_types"),
        ({"regions": ["mars"]}, "regions"),
        ({"backends": ["gcp"]}, "backends"),
        ({"spot_policy": "on-demand"}, "spot_policy"),
    ],
)
def test_a_plan_says_which_condition_stands_in_the_way(config: dict[str, Any], what: str) -> None:
    spec, book = b.run_spec(**{"spot_policy": "auto"} | config), OfferBook([b.offer(has=b.resources(spot=True))])
    fleet = b.view(b.fleet("c"), nodes="0..1", spot_policy="auto")
    offers, _, (note,) = plan_offers(b.requirements(spec), [fleet], book, 50)
    assert not offers and note.hint == f"change `{what}`: without it 1 would match"


def test_offers_of_a_fleet_that_is_cut_are_shown_as_shares() -> None:
    spec = b.run_spec(resources={"cpu": "2..", "memory": "4GB.."})
    book = OfferBook([b.offer("m", 4.0, has=b.resources(cpus=8, gb=32))])
    offers, _, _ = plan_offers(b.requirements(spec), [b.view(b.fleet("c"), nodes="0..1", blocks=4)], book, 50)
    assert [(o.blocks, o.total_blocks, o.price, o.instance.resources.cpus) for o in offers] == [(1, 4, 1.0, 2)]


@pytest.mark.parametrize(
    ("blocks", "has", "into", "most"),
    [
        (3, b.resources(cpus=8, gb=32), "3 equal blocks (m has 8 CPUs)", 2),
        (16, b.resources(cpus=8, gb=32), "16 equal blocks (m has 8 CPUs)", 8),
        (4, b.resources(cpus=12, gpus=3), "4 equal blocks (m has 12 CPUs and 3 GPUs)", 3),
        ("auto", b.resources(cpus=6, gpus=4), "equal blocks, one for each GPU (m has 6 CPUs and 4 GPUs)", 2),
    ],
)
def test_that_nothing_can_be_cut_as_the_fleet_asks_is_said(blocks: Any, has: Resources, into: str, most: int) -> None:
    """And what is named in its place would do."""
    spec, book = b.run_spec(resources={"cpu": "1..", "memory": "1GB.."}), OfferBook([b.offer("m", has=has)])
    config = {"nodes": "0..1", "resources": {"cpu": "1..", "memory": "1GB.."}}
    fleet = b.fleet("c")
    offers, _, (note,) = plan_offers(b.requirements(spec), [b.view(fleet, blocks=blocks, **config)], book, 50)
    assert not offers and note.text == f"can grow, but no machine that fits can be split into {into}"
    assert note.hint == f"set the fleet's `blocks: {most}`"
    assert plan_offers(b.requirements(spec), [b.view(fleet, blocks=most, **config)], book, 50)[1] == 1


def test_a_fleet_shows_what_it_could_be_made_of() -> None:
    book = OfferBook([b.offer("a", 1.0), b.offer("b", 5.0)])
    offers, total = fleet_offers(b.fleet_spec(nodes="0..2", max_price=2), book, 50)
    assert ([offer.instance.name for offer in offers], total) == (["a"], 1)
    assert fleet_offers(b.fleet_spec(), book, 50) == ([], 0)


def test_a_full_fleet_offers_no_new_machine() -> None:
    cloud, book = b.fleet("cloud"), OfferBook([b.offer(has=b.resources(cpus=64, gb=256))])
    full = b.view(cloud, b.host(0, cloud), nodes="1..1")
    fits, big = b.run_spec(), b.run_spec(resources={"cpu": "32.."})
    offers, total, notes = plan_offers(b.requirements(fits), [full], book, 50)
    assert [offer.availability for offer in offers] == ["idle"] and (total, notes) == (1, [])
    offers, _, notes = plan_offers(b.requirements(big), [full], book, 50)
    assert not offers and "is full (1 of 1 nodes)" in notes[0].text and notes[0].hint == "raise `nodes`"


def test_reuse_alone_and_nothing_there_is_said_so() -> None:
    spec = b.run_spec(creation_policy="reuse")
    book = OfferBook([b.offer()])
    offers, _, notes = plan_offers(b.requirements(spec), [b.view(b.fleet("c"), nodes="0..2")], book, 50)
    assert not offers and "`creation_policy: reuse` forbids a new one" in notes[0].text

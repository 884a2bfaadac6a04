"""What AWS sells: types as it describes them, prices and quotas, by region; on an account whose prices are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from chalicelib.backends.aws.catalog import ADDRESS, AwsCatalog, Region, _gpus, _offers
from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.prices import Prices
from chalicelib.backends.aws.quotas import ADDRESSES, availability, code_of
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.domain.instants import DAY, HOUR, MINUTE
from chalicelib.domain.offers import Availability, Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import MissingPermission, Throttled, Unfit
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.why_not import no_offers
from tests.backends.aws.account import Account, Fault, Script
from tests.backends.aws.shop import disk_price, price, volume_price
from tests.backends.clock import Clock

HERE = "eu-west-1"
NAMED = ("g5.xlarge", "m5.large")
PRICED = (*NAMED, "gp3")
BESIDE = disk_price(HERE, 100) + ADDRESS  # what a machine costs besides itself


class Market:
    def __init__(self, script: Script, prices: Path | None = None, **settings: Any) -> None:
        self.clock, self.script = Clock(), script
        self.account = Account(self.clock.now, script)
        config = AWSBackendConfig.model_validate(
            {
                "type": "aws",
                "creds": {"type": "default"},
                "regions": [HERE],
                "experimental_instance_types": ["m5.large", "g6f.large"],
                **settings,
            }
        )
        self.clients = Clients(config.creds, session=self.account.session)
        offline = OfflinePrices(prices) if prices else None
        self.prices = Prices(self.clients, self.clock.now, offline)
        self.catalog = AwsCatalog(self.clients, config, self.prices, self.clock.now)

    def offers(self) -> dict[str, Offer]:
        return {offer.key.removeprefix(f"aws/{HERE}/"): offer for offer in self.catalog.offers()}

    def count_of(self, operation: str) -> int:
        return sum(call.operation == operation for call in self.account.calls)

    def close(self) -> None:
        self.clients.close()
        self.account.close()


@pytest.fixture
def script() -> Script:
    return Script(lag=0, sold=(*NAMED, "g6f.large"))  # each type is a call


@pytest.fixture
def market(script: Script) -> Iterator[Market]:
    made = Market(script)
    yield made
    made.close()


def test_an_account_sells_what_it_has_in_its_zones(market: Market, caplog: pytest.LogCaptureFixture) -> None:
    found = market.offers()
    assert set(found) == {f"{name}/{how}" for name in NAMED for how in ("on-demand", "spot")}
    offer = found["g5.xlarge/on-demand"]
    has = offer.instance.resources
    assert (has.cpus, has.memory_mib, has.cpu_arch, has.spot) == (4, 16 * 1024, "x86", False)
    assert [(gpu.name, gpu.memory_mib, gpu.vendor) for gpu in has.gpus] == [("A10G", 24 * 1024, "nvidia")]
    zones = offer.availability_zones
    assert zones and all(zone.startswith(HERE) and len(zone) == len(HERE) + 1 for zone in zones)
    assert (
        offer.price == pytest.approx(price("g5.xlarge", HERE) + BESIDE) and offer.availability is Availability.unknown
    )
    disk = offer.terms.disk
    assert disk and (disk.most_gib, disk.gib_hour) == (16384, pytest.approx(disk_price(HERE, 100) / 100))
    assert not offer.backend_data
    spot = found["g5.xlarge/spot"]
    assert spot.instance.resources.spot and offer.price * 0.3 < spot.price < offer.price * 0.4
    assert "g6f.large" in caplog.text


def test_the_dearest_zone_is_a_spot_machines_price(market: Market) -> None:
    spot = market.offers()["g5.xlarge/spot"]
    assert spot.availability_zones == tuple(f"{HERE}{letter}" for letter in "abc")
    assert spot.price == pytest.approx(price("g5.xlarge", HERE) * 0.32 + BESIDE), "of the third zone"


def test_prices_are_asked_for_once_a_day_and_go_on_after_a_refusal(market: Market, script: Script) -> None:
    script.faults.append(Fault("GetProducts", "ThrottlingException"))
    with pytest.raises(Throttled):
        market.offers()
    market.offers()
    count = market.count_of("GetProducts")
    assert count <= len(PRICED) + 1, "one was refused, and no other is asked for again"
    market.offers()
    assert market.count_of("GetProducts") == count
    market.clock.at += DAY
    market.offers()
    assert market.count_of("GetProducts") == count + len(PRICED)


def test_a_region_that_does_not_answer_leaves_no_half_catalog(market: Market, script: Script) -> None:
    script.faults.append(Fault("DescribeInstanceTypeOfferings", "InternalError", status=500))
    with pytest.raises(Exception, match="InternalError"):
        market.offers()


def test_a_quota_that_is_too_small_is_said_and_an_unknown_one_is_not(market: Market, script: Script) -> None:
    script.quotas |= {"L-DB2E81BA": 3.0, "L-3819A6DF": 4.0}
    found = market.offers()
    assert found["g5.xlarge/on-demand"].availability is Availability.no_quota
    assert found["g5.xlarge/spot"].availability is Availability.unknown, "four vCPUs are enough for one"
    script.faults.append(Fault("ListServiceQuotas", "AccessDeniedException"))
    assert market.offers()["g5.xlarge/on-demand"].availability is Availability.unknown


def test_a_machine_with_a_public_address_costs_what_that_costs(script: Script) -> None:
    prices = {}
    for public in (True, False):
        market = Market(script, public_ips=public)
        prices[public] = market.offers()["g5.xlarge/on-demand"].price
        market.close()
    assert prices[True] - prices[False] == pytest.approx(ADDRESS)


def test_a_cluster_whose_machines_take_an_elastic_address_each_is_as_large_as_their_quota(script: Script) -> None:
    """AWS gives a machine with several network cards none by itself. Five is what an account begins with."""
    script.sold, script.quotas = ("g5.xlarge", "p4d.24xlarge"), {ADDRESSES: 5.0}
    market = Market(script, experimental_instance_types=None)
    found = market.offers()
    big, small = found["p4d.24xlarge/on-demand"], found["g5.xlarge/on-demand"]
    assert (big.most_nodes, small.most_nodes) == (5, inf)
    book, gpu = OfferBook(found.values()), ResourcesSpec.model_validate({"gpu": "A100:8"})
    assert book.match(Query(gpu, nodes=5))[1] == 1 and book.match(Query(gpu, nodes=6))[1] == 0
    note = no_offers("fleet `big`", Query(gpu, nodes=6), book)
    assert "p4d.24xlarge can't have 6 machines in one cluster" in note.text and "the account may have 5" in note.text
    assert ADDRESSES in note.hint and "public_ips: false" in note.hint
    market.close()
    private = Market(script, experimental_instance_types=None, public_ips=False)
    assert {offer.most_nodes for offer in private.offers().values()} == {inf}
    private.close()


@pytest.mark.parametrize(
    ("type_name", "described", "count"),
    [
        ("p5.48xlarge", {"Count": 8}, 8),
        ("g6f.xlarge", {"Count": 0}, 0),
        ("g6f.xlarge", {"Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}, 0),
        ("g6f.xlarge", {"Count": 1, "LogicalGpuCount": 1, "GpuPartitionSize": 0.5}, 0),
        ("p5.4xlarge", {"Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 1.0}, 1),
        ("p5.4xlarge", {"Count": 0}, 1),
        ("p5.4xlarge", {"Count": 1}, 1),
    ],
)
def test_whole_gpus_count_and_shares_dont_however_aws_says_it(
    type_name: str, described: dict[str, float], count: int
) -> None:
    gpu = {"Name": "H100", "Manufacturer": "NVIDIA", "MemoryInfo": {"SizeInMiB": 81_920}, **described}
    assert len(_gpus({"InstanceType": type_name, "GpuInfo": {"Gpus": [gpu]}})) == count


def test_small_pages_are_read_to_their_end(market: Market, script: Script) -> None:
    offers = market.offers()
    script.page = 1
    assert market.offers() == offers


def test_what_volumes_cost_is_asked_for_once_a_day(market: Market) -> None:
    for _ in range(3):
        assert market.prices.of_volume("gp3", HERE) == volume_price("gp3", HERE)
        assert market.prices.of_volume("gp3", "us-east-1") == volume_price("gp3", "us-east-1")
    assert market.prices.of_volume("gp9", HERE) is None
    assert market.count_of("GetProducts") == 2
    market.clock.at += DAY
    market.prices.of_volume("gp3", HERE)
    assert market.count_of("GetProducts") == 3


# --- reservations and disks -------------------------------------------------------------------------------------------


def test_a_block_is_paid_already_and_is_shown_until_it_begins(market: Market) -> None:
    block = {"ReservationType": "capacity-block"}
    place = market.account.places.reserve
    now, scheduled = (
        place(HERE, f"{HERE}b", "g5.xlarge", **block),
        place(HERE, f"{HERE}a", "g5.xlarge", State="scheduled"),
    )
    found = market.offers()
    assert found[f"g5.xlarge/{now}"].price == pytest.approx(BESIDE, rel=1e-4)
    assert found[f"g5.xlarge/{now}"].availability_zones == (f"{HERE}b",)
    assert found[f"g5.xlarge/{scheduled}"].availability is Availability.not_available


def test_a_block_says_when_its_machines_end_and_is_not_sold_to_its_last_minute(market: Market) -> None:
    """The machines of other reservations outlive them."""
    end = market.clock.at + 2 * HOUR
    place, then = market.account.places.reserve, market.account.at(end)
    ends = place(HERE, f"{HERE}b", "g5.xlarge", EndDate=then, ReservationType="capacity-block")
    stays = place(HERE, f"{HERE}a", "g5.xlarge", EndDate=then)
    found = market.offers()
    assert found[f"g5.xlarge/{ends}"].terms.ends_at == end - 30 * MINUTE
    assert found[f"g5.xlarge/{ends}"].availability is Availability.available
    assert found[f"g5.xlarge/{stays}"].terms.ends_at is None
    market.clock.at = end - 40 * MINUTE
    found = market.offers()
    assert found[f"g5.xlarge/{ends}"].availability is Availability.not_available
    assert found[f"g5.xlarge/{stays}"].availability is Availability.available


def test_a_reserved_type_is_offered_even_if_it_is_not_sold_otherwise(market: Market, script: Script) -> None:
    """And only in its reservation; nothing is offered that is reserved for another system or in a Local Zone."""
    script.sold += ("c5.large",)
    place = market.account.places.reserve
    place_id = place(HERE, f"{HERE}a", "c5.large")
    place(HERE, f"{HERE}a", "c5.large", InstancePlatform="Windows")
    place(HERE, "eu-west-1-lhr-1a", "c5.large")
    assert {key for key in market.offers() if key.startswith("c5.")} == {f"c5.large/{place_id}"}


@pytest.mark.parametrize(("kind", "sold"), [("cpu", {"m5.large"}), ("nvidia", {"g5.xlarge"})])
def test_what_the_account_has_no_image_for_is_not_offered(script: Script, kind: str, sold: set[str]) -> None:
    """Reservations neither."""
    market = Market(script, os_images={kind: {"name": "ours-*", "user": "ubuntu"}})
    for name in NAMED:
        market.account.places.reserve(HERE, f"{HERE}a", name)
    found = market.offers()
    assert {key.partition("/")[0] for key in found} == sold and len(found) == 3
    market.close()


def test_an_account_that_may_not_ask_for_reservations_has_none(market: Market, script: Script) -> None:
    market.account.places.reserve(HERE, f"{HERE}a", "g5.xlarge")
    script.faults.append(Fault("DescribeCapacityReservations", "UnauthorizedOperation", status=403))
    assert len(market.offers()) == 2 * len(NAMED)
    assert len(market.offers()) == 2 * len(NAMED) + 1


def test_the_price_of_a_disk_is_that_of_its_region(market: Market) -> None:
    offer = market.offers()["g5.xlarge/on-demand"]
    large = offer.sized(1000.5)
    assert large.instance.resources.disk.size_mib == 1001 * 1024
    assert large.price == pytest.approx(price("g5.xlarge", HERE) + disk_price(HERE, 1001) + ADDRESS, abs=1e-5)
    assert offer.sized(17_000) is offer, "AWS has none so large"


# --- without the right to ask for prices ------------------------------------------------------------------------------

CSV = """provider,instance_type,region,vcpus,mem_gib,gpu_name,gpu_count,gpu_mem_gib,price,spot_price
aws,g5.xlarge,eu-west-1,4,16,a10g,1,22,1.123,0.5
aws,m5.large,us-east-1,2,8,,0,,0.096,
aws,gp3,eu-west-1,,,,,,0.088,
gcp,m5.large,eu-west-1,2,8,,0,,9.9,9.9
"""


@pytest.fixture
def denied(script: Script, tmp_path: Path) -> Iterator[Market]:
    script.faults.append(Fault("GetProducts", "AccessDeniedException", times=99))
    script.faults.append(Fault("DescribeSpotPriceHistory", "UnauthorizedOperation", times=99, status=403))
    (tmp_path / "prices.csv").write_text(CSV)
    made = Market(script, tmp_path / "prices.csv")
    yield made
    made.close()


def test_a_file_has_the_prices_that_an_account_may_not_ask_for(denied: Market) -> None:
    found = denied.offers()
    prices = {"g5.xlarge/on-demand": 1.123 + BESIDE, "g5.xlarge/spot": 0.5 + BESIDE}
    assert {key: offer.price for key, offer in found.items()} == pytest.approx(prices, rel=1e-5)
    assert all(offer.terms.prices.startswith("prices.csv, 20") for offer in found.values())


def test_the_file_has_prices_of_volumes_too(denied: Market) -> None:
    assert (denied.prices.of_volume("gp3", HERE), denied.prices.of_volume("gp2", HERE)) == (0.088, None)


def test_the_file_is_read_again_when_it_changes(denied: Market, tmp_path: Path) -> None:
    denied.offers()
    (tmp_path / "prices.csv").write_text(CSV.replace("1.123", "22.75"))
    assert denied.offers()["g5.xlarge/on-demand"].price == pytest.approx(22.75 + BESIDE)


def test_without_a_file_the_permission_is_named(market: Market, script: Script) -> None:
    script.faults.append(Fault("GetProducts", "AccessDeniedException", times=99))
    with pytest.raises(MissingPermission, match="pricing:GetProducts"):
        market.offers()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "can't be read"),
        ("provider,region\naws,x\n", "lack the column instance_type, price, spot_price"),
        (CSV.replace("1.123", "cheap"), "line 2: price is 'cheap'"),
        (CSV.replace("1.123", "-1"), "line 2: price is '-1'"),
        (CSV.replace("1.123", "nan"), "line 2: price is 'nan'"),
        (b"\xff\xfe", "can't be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_the_line(
    tmp_path: Path, text: str | bytes | None, message: str
) -> None:
    path = tmp_path / "prices.csv"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Unfit, match=message):
        OfflinePrices(path).of("aws")


# --- every type there is ----------------------------------------------------------------------------------------------


def everything(names: Mapping[str, Any] = INSTANCE_TYPES) -> dict[str, Offer]:
    """What would be offered of these, at a dollar each."""
    config = AWSBackendConfig.model_validate({"type": "aws", "creds": {"type": "default"}})
    api = Clients(config.creds)
    catalog = AwsCatalog(api, config, Prices(api, lambda: 0), lambda: 0)
    types = {name: body for name, body in names.items() if catalog._wanted(body)}
    region = Region(HERE, types, {name: ["eu-west-1a"] for name in types}, {}, {})
    return {offer.instance.name: offer for offer in _offers(region, {name: {HERE: 1.0} for name in types}, "")}


def test_types_whose_disks_have_no_identity_get_no_volumes() -> None:
    """As AWS describes them: t2 and i3 are older than NVMe disks, whatever local ones i3 has."""
    names = ("t2.large", "i3.large", "m7i.large", "m7i.metal-24xl", "g5.xlarge")
    region = Region(
        HERE, {name: INSTANCE_TYPES[name] for name in names}, {name: ["eu-west-1a"] for name in names}, {}, {}
    )
    found = _offers(region, {name: {HERE: 1.0} for name in names}, "")
    assert {offer.instance.name for offer in found if offer.terms.no_volumes} == {"t2.large", "i3.large"}


@pytest.fixture(scope="module")
def all_types() -> dict[str, Offer]:
    return everything()


@pytest.mark.parametrize(
    ("name", "gpus", "memory", "efa"),
    [
        ("g4dn.12xlarge", ["T4"] * 4, 16, [0]),
        ("g5.48xlarge", ["A10G"] * 8, 24, [0]),
        ("g5g.xlarge", ["T4G"], 16, []),
        ("g6.xlarge", ["L4"], 24, []),
        ("g6e.48xlarge", ["L40S"] * 8, 48, [0, 1, 2, 3]),
        ("g7e.2xlarge", ["RTXPRO6000"], 96, []),
        ("p4d.24xlarge", ["A100"] * 8, 40, [0, 1, 2, 3]),
        ("p4de.24xlarge", ["A100"] * 8, 80, [0, 1, 2, 3]),
        ("p5.48xlarge", ["H100"] * 8, 80, list(range(32))),
        ("p5en.48xlarge", ["H200"] * 8, 141, list(range(16))),
        ("p6-b200.48xlarge", ["B200"] * 8, 180, list(range(8))),
        ("p6-b300.48xlarge", ["B300"] * 8, 288, list(range(1, 17))),
    ],
)
def test_gpus_have_the_names_and_sizes_that_people_use(
    all_types: dict[str, Offer], name: str, gpus: list[str], memory: int, efa: list[int]
) -> None:
    offer = all_types[name]
    has = offer.instance.resources
    assert [gpu.name for gpu in has.gpus] == gpus and {gpu.memory_mib for gpu in has.gpus} == {memory * 1024}
    assert offer.backend_data.get("efa", []) == efa


def test_shares_of_a_gpu_and_what_a_run_cannot_ask_for_are_left_out(all_types: dict[str, Offer]) -> None:
    assert not any(name.startswith(("g6f.", "gr6f.", "trn", "inf", "mac", "p3")) for name in all_types)
    assert not any("metal" in name for name in all_types)
    assert all_types["m7g.large"].instance.resources.cpu_arch == "arm"
    assert {offer.instance.resources.cpu_arch for offer in all_types.values()} == {"x86", "arm"}


@pytest.mark.parametrize(
    ("name", "on_demand", "spot"),
    [
        ("m7i.large", "L-1216C47A", "L-34B43A08"),
        ("im4gn.large", "L-1216C47A", "L-34B43A08"),
        ("gr6.4xlarge", "L-DB2E81BA", "L-3819A6DF"),
        ("p4d.24xlarge", "L-417A185B", "L-7212CCBC"),
        ("p5en.48xlarge", "L-417A185B", "L-C4BD4855"),
        ("p6-b200.48xlarge", "L-417A185B", None),
        ("trn2.48xlarge", "L-2C3B7624", "L-6B0D517C"),
        ("inf2.xlarge", "L-1945791B", "L-B5D1601B"),
        ("dl1.24xlarge", "L-6E869C2A", "L-85EED4F7"),
        ("u-3tb1.56xlarge", None, None),
        ("mac2.metal", None, None),
    ],
)
def test_a_type_counts_against_its_familys_quota(name: str, on_demand: str | None, spot: str | None) -> None:
    assert (code_of(name, spot=False), code_of(name, spot=True)) == (on_demand, spot)


def test_every_type_that_is_offered_has_a_quota(all_types: dict[str, Offer]) -> None:
    assert [name for name in all_types if code_of(name, spot=False) is None] == []


def test_a_quota_is_compared_with_the_types_vcpus() -> None:
    assert availability({"L-DB2E81BA": 7}, "g5.2xlarge", 8, spot=False) is Availability.no_quota
    assert availability({"L-DB2E81BA": 8}, "g5.2xlarge", 8, spot=False) is Availability.unknown
    assert availability({}, "g5.2xlarge", 8, spot=False) is Availability.unknown

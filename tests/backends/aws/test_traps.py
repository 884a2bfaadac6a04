"""What is easily lost on AWS: addresses, twins in another zone, and whatever an interrupted launch leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from chalicelib.backends.accounts import Account as Served
from chalicelib.backends.accounts import Accounts
from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.spi import CreateRequest, Machine
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, Micros
from chalicelib.domain.offers import Offer
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.engine.sweep import Sweeper
from chalicelib.errors import BackendError, InsufficientCapacity, MissingPermission, QuotaExceeded, Transient, Unfit
from tests.backends.aws.account import Account, Fault
from tests.backends.aws.lines import KEY
from tests.backends.aws.provider import AwsProvider, clients, config
from tests.backends.aws.wire import Call
from tests.backends.clock import Clock
from tests.backends.conformance import group_request_for, inside, request_for, volume_request
from tests.backends.conformance.requests import INSTALL
from tests.backends.conformance.suite import cut_short, is_gone
from tests.backends.test_aws import usual_offers
from tests.world.engine import Engine
from tests.world.ports import Books
from tests.world.ports import accounts as accounts_of

HERE = "us-east-1"
ZONES = tuple(f"{HERE}{letter}" for letter in "abcdef")


class Site:
    """An account, and a backend of it."""

    def __init__(self, **configured: object) -> None:
        self.clock = Clock()
        self.account = Account(self.clock.now)
        self.provider = AwsProvider(self.account)
        settings = {"regions": [HERE], **configured}
        self.backend = AwsBackend(config(**settings), clients(self.account), self.clock.now)

    def pass_time(self, micros: Micros = 2 * MINUTE) -> None:
        self.clock.at += micros

    def end(self, handles: Sequence[Handle]) -> None:
        for _ in range(50):
            if all([is_gone(self.backend, handle) for handle in reversed(handles)]):
                return
            self.pass_time(5 * SECOND)
        pytest.fail(f"of {handles}, something is still there")

    @property
    def machines(self) -> set[str]:
        return {each for each in self.provider.existing() if each.startswith("i-")}


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.account.close()


def offer(name: str, *, spot: bool = False) -> Offer:
    found = (o for o in usual_offers() if (o.region, o.instance.name) == (HERE, name))
    return next(each for each in found if each.instance.resources.spot is spot)


@pytest.fixture
def of_a_cluster(site: Site) -> CreateRequest:
    """A machine with several network cards, which needs an address of its own."""
    group = site.backend.create_group(group_request_for(offer("p4d.24xlarge")))
    return inside(request_for(offer("p4d.24xlarge")), group)


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_address_is_never_lost(site: Site, of_a_cluster: CreateRequest, after: int) -> None:
    made = cut_short(site.backend, of_a_cluster, after)
    assert {handle.id for handle in made} == site.provider.existing()
    site.pass_time()
    again = list(site.backend.create(of_a_cluster))
    assert again[: len(made)] == made and [handle.kind for handle in again] == ["address", "vm"]
    assert {handle.id for handle in again} == site.provider.existing()
    site.end(again)
    assert site.provider.existing() == set()


@pytest.mark.parametrize("after", [1, 2])
def test_what_was_yielded_of_a_machine_with_an_address_is_all_there_is(
    site: Site, of_a_cluster: CreateRequest, after: int
) -> None:
    site.end(cut_short(site.backend, of_a_cluster, after))
    assert site.provider.existing() == set()


def test_a_running_machine_gets_its_address_and_keeps_it(site: Site, of_a_cluster: CreateRequest) -> None:
    made = list(site.backend.create(of_a_cluster))
    site.pass_time()
    found = site.backend.describe(made)
    assert found.hostname == made[0].data["ip"] != found.internal_ip
    assert site.backend.describe(made[::-1]) == found
    assert len(site.account.params_of("AssociateAddress")) == 1


def test_a_machine_whose_address_somebody_released_isnt_gone(site: Site, of_a_cluster: CreateRequest) -> None:
    made = list(site.backend.create(of_a_cluster))
    site.pass_time()
    site.account.places.addresses.clear()
    with pytest.raises(Transient, match=f"{made[0].data['ip']} of {made[1].id}"):
        site.backend.describe(made)


def test_no_address_left_is_a_quota(site: Site, of_a_cluster: CreateRequest) -> None:
    site.account.script.addresses = 0
    with pytest.raises(QuotaExceeded):
        list(site.backend.create(of_a_cluster))
    assert site.provider.existing() == set()


def test_an_address_whose_machine_isnt_to_be_had_is_released(site: Site, of_a_cluster: CreateRequest) -> None:
    site.provider.none_left(of_a_cluster.offer)
    made = []
    with pytest.raises(InsufficientCapacity):
        for handle in site.backend.create(of_a_cluster):
            made.append(handle)  # noqa: PERF402 - what came before the failure counts
    made = [handle for handle in made if handle.kind != TRYING]
    assert {handle.id for handle in made} == site.provider.existing()
    site.end(made)
    assert site.provider.existing() == set()


def test_without_public_addresses_none_is_asked_for() -> None:
    site = Site(public_ips=False)
    with pytest.raises(Unfit, match="no private subnet"):
        list(site.backend.create(request_for(offer("m7i.large"))))
    assert site.account.params_of("AllocateAddress") == [] == site.account.params_of("RunInstances")
    site.account.close()


# --- zones ------------------------------------------------------------------------------------------------------------


def test_a_launch_goes_on_in_the_next_zone(site: Site) -> None:
    name = "g5.xlarge"
    site.account.script.capacity[f"{ZONES[0]}/{name}"] = 0
    site.account.script.not_offered.add(f"{ZONES[1]}/{name}")
    *tried, machine = site.backend.create(request_for(offer(name)))
    assert machine.data["zone"] == ZONES[2]
    assert [handle.data["zone"] for handle in tried] == [ZONES[1], ZONES[2]], "each told before it was tried"
    tokens = [params["ClientToken"] for params in site.account.params_of("RunInstances")]
    assert len(tokens) == len(set(tokens)) == 3, "a token is good for one zone"


def test_a_stockout_is_asked_about_once_a_zone(site: Site) -> None:
    """The SDK alone would ask thrice."""
    request = request_for(offer("g5.xlarge"))
    site.provider.none_left(request.offer)
    with pytest.raises(InsufficientCapacity) as raised:
        list(site.backend.create(request))
    assert len(site.account.params_of("RunInstances")) == len(request.zones or ())
    assert all(zone in str(raised.value) for zone in request.zones or ())


def test_what_was_remembered_and_is_gone_is_looked_up_again(site: Site) -> None:
    operations = ("DescribeImages", "DescribeSubnets", "DescribeSecurityGroups")
    list(site.backend.create(request_for(offer("g5.xlarge"))))
    site.account.script.faults.append(Fault("RunInstances", "InvalidAMIID.NotFound"))
    with pytest.raises(Unfit):
        list(site.backend.create(request_for(offer("g5.xlarge"), "two")))
    before = [len(site.account.params_of(operation)) for operation in operations]
    list(site.backend.create(request_for(offer("g5.xlarge"), "three")))
    assert [len(site.account.params_of(operation)) for operation in operations] == [count + 1 for count in before]


@pytest.mark.parametrize(
    "code", ["VcpuLimitExceeded", "RequestLimitExceeded", "UnauthorizedOperation", "InternalError"]
)
def test_what_isnt_about_the_zone_ends_the_launch(site: Site, code: str) -> None:
    site.account.script.faults.append(Fault("RunInstances", code, times=9))
    with pytest.raises(BackendError):
        list(site.backend.create(request_for(offer("g5.xlarge"))))
    assert len(site.account.params_of("RunInstances")) == 1


def test_a_machine_that_went_to_another_zone_is_adopted(site: Site) -> None:
    """Once it shows: AWS's own token knows nothing of it in the first zone, which has room again."""
    request = request_for(offer("g5.xlarge"))
    site.account.script.capacity[f"{ZONES[0]}/g5.xlarge"] = 0
    made = list(site.backend.create(request))
    site.account.script.capacity.clear()
    site.pass_time()
    assert list(site.backend.create(request)) == made[-1:]
    assert site.machines == {made[-1].id} and made[0].kind == TRYING


# --- a security group of the account's own ----------------------------------------------------------------------------


def made_group(site: Site) -> str:
    vpc = site.account.in_moto(HERE).describe_vpcs(filters={"is-default": "true"})[0].id
    params = {"GroupName": "machines", "Description": "ours", "VpcId": vpc}
    return str(site.account.handle(Call("ec2", HERE, "CreateSecurityGroup", params, KEY))["GroupId"])


def test_a_group_that_is_given_is_used_as_it_is(site: Site) -> None:
    given = made_group(site)
    backend = AwsBackend(
        config(regions=[HERE], security_group_ids={HERE: given}), clients(site.account), site.clock.now
    )
    backend.check()
    site.account.calls.clear()
    list(backend.create(request_for(offer("g5.xlarge"))))
    (params,) = site.account.params_of("RunInstances")
    assert [nic["Groups"] for nic in params["NetworkInterfaces"]] == [[given]]
    changes = ("Create", "Authorize")
    assert not [call for call in site.account.calls if call.operation.startswith(changes)]


def test_a_group_that_isnt_there_is_told() -> None:
    site = Site(security_group_ids={HERE: "sg-0123456789abcdef0"})
    for call in (site.backend.check, lambda: list(site.backend.create(request_for(offer("g5.xlarge"))))):
        with pytest.raises(Unfit, match="has no security group sg-0123456789abcdef0"):
            call()
    site.account.close()


# --- reservations -----------------------------------------------------------------------------------------------------


def test_a_reservation_is_used_where_it_is(site: Site) -> None:
    reserved = site.account.places.reserve(HERE, ZONES[3], "g5.xlarge")
    (machine,) = site.backend.create(replace(request_for(offer("g5.xlarge")), reservation=reserved))
    assert machine.data["zone"] == ZONES[3]
    assert site.account.machines.all[machine.id].reservation == reserved
    with pytest.raises(InsufficientCapacity):
        list(site.backend.create(replace(request_for(offer("g5.xlarge"), "two"), reservation=reserved)))


def test_a_capacity_block_is_launched_as_one(site: Site) -> None:
    block = site.account.places.reserve(HERE, ZONES[0], "p4d.24xlarge", ReservationType="capacity-block")
    (machine,) = site.backend.create(replace(request_for(offer("p4d.24xlarge")), reservation=block))
    (params,) = site.account.params_of("RunInstances")
    assert params["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert machine.id in site.machines


def test_the_end_of_a_block_is_announced_unless_it_is_put_off(site: Site) -> None:
    end = site.clock.at + 2 * HOUR
    kind = {"ReservationType": "capacity-block", "EndDate": site.account.at(end)}
    block = site.account.places.reserve(HERE, ZONES[0], "p4d.24xlarge", **kind)
    made = list(site.backend.create(replace(request_for(offer("p4d.24xlarge")), reservation=block)))
    site.pass_time(2 * HOUR - 41 * MINUTE)
    assert not site.backend.describe(made).interrupted
    site.pass_time(MINUTE)
    found = site.backend.describe(made)
    assert (found.interrupted, found.reclaim_at) == (True, end - 30 * MINUTE)
    site.account.places.reservations[block]["EndDate"] = site.account.at(end + DAY)
    assert not site.backend.describe(made).interrupted


def test_nothing_is_launched_into_a_block_that_ends(site: Site) -> None:
    kind = {"ReservationType": "capacity-block", "EndDate": site.account.at(site.clock.at + 40 * MINUTE)}
    block = site.account.places.reserve(HERE, ZONES[0], "p4d.24xlarge", **kind)
    with pytest.raises(Unfit, match=f"{block}.* ends"):
        list(site.backend.create(replace(request_for(offer("p4d.24xlarge")), reservation=block)))
    assert site.account.params_of("RunInstances") == []


def test_machines_are_described_with_one_call_and_their_notices_with_another(site: Site) -> None:
    wanted = [request_for(offer("g5.xlarge", spot=n % 2 == 0), f"n{n}") for n in range(10)]
    made = [list(site.backend.create(request)) for request in wanted]
    site.pass_time()
    site.account.calls.clear()
    found = site.backend.describe_several(made)
    assert [each.state for each in found if isinstance(each, Machine)] == ["running"] * 10
    assert [call.operation for call in site.account.calls] == ["DescribeInstances", "DescribeSpotInstanceRequests"]


def test_a_region_that_fails_hides_no_machine_of_another() -> None:
    site = Site(regions=[HERE, "eu-west-1"])
    there = next(each for each in usual_offers() if each.region == "eu-west-1" and not each.instance.resources.spot)
    made = [list(site.backend.create(request_for(each, each.region))) for each in (offer("g5.xlarge"), there)]
    site.pass_time()
    site.account.script.faults.append(Fault("DescribeInstances", "Unavailable", region=HERE))
    fails, runs = site.backend.describe_several(made)
    site.account.close()
    assert isinstance(fails, Transient) and isinstance(runs, Machine) and runs.state == "running"


@pytest.mark.parametrize("operation", ["DescribeSpotInstanceRequests", "DescribeCapacityReservations"])
def test_notices_that_cannot_be_asked_for_hide_only_machines_that_may_have_one(site: Site, operation: str) -> None:
    block = site.account.places.reserve(HERE, ZONES[0], "p4d.24xlarge", ReservationType="capacity-block")
    wanted = [
        request_for(offer("g5.xlarge", spot=True), "spot"),
        replace(request_for(offer("p4d.24xlarge"), "block"), reservation=block),
        request_for(offer("g5.xlarge"), "other"),
    ]
    made = [list(site.backend.create(request)) for request in wanted]
    site.pass_time()
    site.account.script.faults.append(Fault(operation, "UnauthorizedOperation"))
    found = site.backend.describe_several(made)
    silent = ("DescribeSpotInstanceRequests", "DescribeCapacityReservations").index(operation)
    hidden = [isinstance(each, MissingPermission) for each in found]
    assert hidden == [number == silent for number in range(3)]


# --- orphans ----------------------------------------------------------------------------------------------------------


def orphans(site: Site) -> set[str]:
    """Everything that interrupted launches have been seen to leave."""
    tags = dict(request_for(offer("g5.xlarge"), "lost").tags)
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]

    def call(operation: str, **params: object) -> dict[str, object]:
        return site.account.handle(Call("ec2", HERE, operation, params, KEY))

    def specified(kind: str) -> list[dict[str, object]]:
        return [{"ResourceType": kind, "Tags": listed}]

    launched = {"ImageId": "ami-0d1a000000000001", "InstanceType": "g5.xlarge", "MinCount": 1, "MaxCount": 1}
    for zone in ZONES[:2]:  # twins: one token, two zones
        call("RunInstances", **launched, TagSpecifications=specified("instance"), Placement={"AvailabilityZone": zone})
    address = call("AllocateAddress", Domain="vpc", TagSpecifications=specified("elastic-ip"))["AllocationId"]
    volume = site.account.disks.add(HERE, ZONES[0], tags)
    nic = site.account.new_id("eni")
    site.account.places.loose[nic] = {
        "NetworkInterfaceId": nic,
        "Status": "available",
        "TagSet": listed,
        "Tags": listed,
        "Region": HERE,
        "AvailabilityZone": ZONES[0],
    }
    return {str(address), volume, nic, *site.machines}


def test_orphans_are_listed_and_ended(site: Site) -> None:
    strangers = site.provider.strangers(site.backend, offer("g5.xlarge"))
    left = orphans(site) - strangers
    site.pass_time()
    found = [one for one in site.backend.list_owned() if one.install == INSTALL]
    assert {one.handle.id for one in found} == left and len(left) == 5
    assert {one.instance_id for one in found} == {request_for(offer("g5.xlarge"), "lost").instance_id}
    site.end([one.handle for one in found])
    assert site.provider.existing() == strangers


def test_what_is_left_of_a_machine_is_asked_of_its_region_alone() -> None:
    """With ten other regions, whose limits on calls nobody should use up for it."""
    site = Site(regions=None)
    request = request_for(offer("g5.xlarge"))
    made = list(site.backend.create(request))
    site.pass_time()
    site.account.calls.clear()
    assert [one.handle for one in site.backend.list_owned(request.instance_id, HERE)] == made
    assert {call.region for call in site.account.calls} == {HERE} and len(site.account.calls) == 4
    site.account.close()


def test_a_machine_that_is_protected_says_so_and_ends_once_it_isnt(site: Site) -> None:
    made = list(site.backend.create(request_for(offer("g5.xlarge"))))
    site.pass_time()
    site.account.script.faults.append(Fault("TerminateInstances", "OperationNotPermitted"))
    with pytest.raises(MissingPermission, match=f"{made[0].id} in {HERE} is protected against termination"):
        site.backend.terminate(made[0])
    site.end(made)


def test_a_zone_without_a_subnet_is_told_with_those_that_have_one(site: Site) -> None:
    with pytest.raises(Unfit, match=f"no subnet for machines in {HERE}z: it has some in {ZONES[0]}, {ZONES[1]}"):
        list(site.backend.create(replace(request_for(offer("g5.xlarge")), zones=(f"{HERE}z",))))


def test_an_empty_group_is_listed_and_ended(site: Site) -> None:
    site.backend.create_group(group_request_for(offer("p4d.24xlarge")))
    (owned,) = site.backend.list_owned_groups()
    assert owned.install == INSTALL
    site.backend.delete_group(owned.handle)
    assert site.account.places.groups == {}


def test_an_address_whose_machine_is_gone_is_listed(site: Site, of_a_cluster: CreateRequest) -> None:
    made = list(site.backend.create(of_a_cluster))
    site.pass_time()
    site.backend.describe(made)
    site.provider.lost(made)
    site.pass_time()
    assert [one.handle for one in site.backend.list_owned()] == [made[0]]
    site.end([made[0]])
    assert site.provider.existing() == set()


def sweep(site: Site, place: Engine) -> None:
    """As the program does it: whatever no record of ours explains ends once two looks agree."""
    place.at = site.clock.at
    accounts = Accounts([Served.of(site.backend)])
    here = EffectContext(place.store, place, accounts, INSTALL, b"k" * 32)
    load = Loader(Reader(place.store), Books(), accounts)
    Sweeper(Executor(here, load, wake=place.woken.extend)).run(*accounts.accounts())


def test_the_sweep_ends_every_orphan_and_nothing_of_anybody_else(site: Site) -> None:
    place = Engine.in_memory(backends=accounts_of(site.backend.facts))
    strangers = site.provider.strangers(site.backend, offer("g5.xlarge"))
    orphans(site)
    site.backend.create_group(group_request_for(offer("p4d.24xlarge")))
    site.backend.create_volume(volume_request(HERE))
    site.pass_time()
    for turn in range(12):
        sweep(site, place)
        assert turn or len(site.provider.existing()) > len(strangers) + 5, "nothing is done at first sight"
        site.pass_time(10 * MINUTE)
    assert site.provider.existing() == strangers
    assert site.account.places.groups == {}
    place.store.close()

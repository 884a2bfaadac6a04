"""The hosts of a cluster are on one network, which is found out unless the spec says it."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, OnPrem
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.host_networks import beside, detects, shared, subnets, within
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.snapshots import FleetSnapshot, InstanceSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from tests.world import nouns as b
from tests.world.nouns import lint

HOSTS: dict[str, Any] = {"user": "u", "hosts": ["h0", "h1", "h2"]}
A, B = "10.1.0.0/24", "10.2.0.0/24"


def cluster(**ssh: Any) -> FleetSpec:
    return b.fleet_spec(ssh_config={**HOSTS, **ssh}, placement="cluster")


def joins(fleet: Fleet, num: int, *networks: str, of: FleetSpec | None = None) -> tuple[Instance, Fleet]:
    """A host whose agent reports these addresses; and its fleet afterwards."""
    of = of or cluster()
    host = OnPrem(hostname=f"h{num}", port=22)
    instance = b.host(num, fleet, host=host, status="pending", started_at=None, idle_since=None)
    facts = b.host_facts(addresses=tuple(each.partition("/")[0] for each in networks), networks=networks)
    presence = b.presence_of(instance, facts=facts)
    snapshot = InstanceSnapshot(b.NOW, instance, presence, FleetView(fleet, of, (instance,)), (), None, ())
    plan = decide_instance(snapshot)
    assert lint(snapshot, plan) == []
    saves = [noun for step in plan.steps for noun in step.saves]
    fleets = [noun for noun in saves if isinstance(noun, Fleet)]
    return next(noun for noun in saves if isinstance(noun, Instance)), fleets[-1] if fleets else fleet


def test_hosts_of_one_subnet_are_a_cluster() -> None:
    fleet = b.fleet("lab")
    first, fleet = joins(fleet, 0, "192.0.2.1/24", "10.1.0.5/24", "10.2.0.5/24")
    assert (first.status, fleet.networks) == ("idle", ("192.0.2.0/24", A, B))
    assert first.networks == fleet.networks
    second, fleet = joins(fleet, 1, "10.2.0.6/24", "10.1.0.6/24")
    assert (second.status, fleet.networks, second.internal_ip) == ("idle", (A, B), "10.1.0.6")
    third, fleet = joins(fleet, 2, "10.2.0.7/24")
    assert (third.status, fleet.networks, third.internal_ip) == ("idle", (B,), "10.2.0.7")


def test_elsewhere_nobody_asks_which_networks_a_host_is_in() -> None:
    alone, fleet = joins(b.fleet("lab"), 0, "10.1.0.5/24", of=b.fleet_spec(ssh_config=HOSTS))
    assert (alone.status, alone.networks, fleet.networks) == ("idle", (), ())


def test_those_that_came_before_move_to_the_network_that_is_left() -> None:
    fleet = b.fleet("lab", networks=(B,))
    there = b.host(0, fleet, host=OnPrem(hostname="h0", port=22), internal_ip="10.1.0.5", networks=(A, B))
    facts = b.host_facts(addresses=("10.1.0.5", "10.2.0.5"), networks=("10.1.0.5/24", "10.2.0.5/24"))
    plan = decide_fleet(FleetSnapshot(b.NOW, FleetView(fleet, cluster(), (there,)), OfferBook(()), {}))
    (due,) = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    assert due.due_at == b.NOW
    view = FleetView(fleet, cluster(), (due,))
    next_plan = decide_instance(InstanceSnapshot(b.NOW, due, b.presence_of(due, facts=facts), view, (), None, ()))
    assert next_plan.steps[0].saves[0].internal_ip == "10.2.0.5"  # type: ignore[attr-defined]


def test_a_host_that_shares_none_is_refused_with_the_reason() -> None:
    _, fleet = joins(b.fleet("lab"), 0, "10.1.0.5/24")
    other, after = joins(fleet, 1, "10.2.0.6/24")
    assert other.status == "terminating" and after == fleet, "it takes nothing from the others"
    assert other.message.startswith(f"it shares no network with the fleet's other hosts: it is in {B}, and they in {A}")
    assert "set `network`" in other.message


@pytest.mark.parametrize(
    ("known", "left", "after"),
    [
        ((A,), [], ()),
        ((B,), [(A, B), (A, B)], (B, A)),
        ((B,), [(A, B), (B,)], None),
        ((B,), [(A,)], None),  # its own have changed since
    ],
)
def test_what_only_a_host_lacked_that_has_left_counts_again(
    known: tuple[str, ...], left: list[tuple[str, ...]], after: tuple[str, ...] | None
) -> None:
    fleet = b.fleet("lab", networks=known, last_processed_at=b.NOW - b.DAY)
    hosts = [b.host(n, fleet, host=OnPrem(hostname=f"h{n}", port=22), networks=each) for n, each in enumerate(left)]
    gone = b.host(2, fleet, host=OnPrem(hostname="h2", port=22), networks=known, status="terminating")
    snapshot = FleetSnapshot(b.NOW, FleetView(fleet, cluster(), (*hosts, gone)), OfferBook(()), {})
    plan = decide_fleet(snapshot)
    assert lint(snapshot, plan) == []
    saved = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Fleet)]
    assert saved == ([] if after is None else [fleet.with_(networks=after, last_processed_at=b.NOW)])
    if after == ():
        other, _ = joins(saved[0], 1, "10.9.0.6/24")
        assert other.status == "idle", "the first of the next ones says where"


@pytest.mark.parametrize("networks", [(), ("8.8.8.8/24",), ("nonsense",), ("10.1.0.5/32",)])
def test_a_host_in_no_private_network_is_refused(networks: tuple[str, ...]) -> None:
    other, _ = joins(b.fleet("lab"), 0, *networks)
    assert "it is in no private network that other hosts could share" in other.message


@pytest.mark.parametrize(
    "of",
    [
        cluster(network="10.0.0.0/8"),
        cluster(hosts=[{"hostname": f"h{n}", "internal_ip": f"10.{n + 1}.0.5"} for n in range(3)]),
        b.fleet_spec(ssh_config=HOSTS),
    ],
    ids=["network", "internal_ip", "placement: any"],
)
def test_what_the_spec_says_isnt_found_out(of: FleetSpec) -> None:
    assert not detects(of)
    first, fleet = joins(b.fleet("lab"), 0, "10.1.0.5/24", of=of)
    second, fleet = joins(fleet, 1, "10.2.0.5/24", of=of)
    assert [first.status, second.status] == ["idle", "idle"] and fleet.networks == ()
    assert second.internal_ip == "10.2.0.5"


def test_a_host_that_joined_by_itself_is_not_beside_those_whose_addresses_are_given() -> None:
    fleet, of = b.fleet("lab"), b.fleet_spec(ssh_config={**HOSTS, "hosts": ADDRESSES})
    given = OnPrem(hostname="h0", port=22, internal_ip="10.1.0.5")
    listed = b.host(0, fleet, host=given, internal_ip="10.1.0.5", networks=(A,))
    joined = b.host(2, fleet, host=OnPrem(hostname="h2", port=0, joined=True), internal_ip="10.1.0.7", networks=(A,))
    assert beside(joined, listed, of) == beside(listed, joined, of) == ""


def test_subnets_are_private_and_named_once() -> None:
    seen = ("10.1.0.5/24", "10.1.0.6/24", "100.64.3.1/10", "1.1.1.1/8", "fd00::1/64", "x/y")
    assert subnets(b.host_facts(networks=seen)) == (A, "100.64.0.0/10", "fd00::/64")
    assert shared((), [(A, B), (B,)]) == (B,)


ADDRESSES = [{"hostname": "h0", "internal_ip": "10.1.0.5"}, {"hostname": "h1", "internal_ip": "10.2.0.6"}]


@pytest.mark.parametrize(
    ("of", "networks", "address", "where"),
    [
        (cluster(), ((A, B), (A,)), "10.1.0.6", "10.1.0.6"),
        (cluster(), ((A,), (B,)), "10.1.0.6", ""),
        (cluster(), ((A, B), (A, B)), "10.2.0.6", ""),  # its address is in another of their networks
        (cluster(), ((), ()), "10.1.0.6", ""),
        (cluster(network=A), ((), ()), "10.1.0.6", "10.1.0.6"),
        (cluster(network=A), ((), ()), "10.2.0.6", ""),
        (cluster(network=A), ((), ()), "", ""),
        (b.fleet_spec(ssh_config={**HOSTS, "network": A}), ((), ()), "10.1.0.6", "10.1.0.6"),
        (b.fleet_spec(ssh_config={**HOSTS, "hosts": ADDRESSES}), ((), ()), "10.2.0.6", "10.2.0.6"),
        (b.fleet_spec(ssh_config=HOSTS), ((A,), (A,)), "10.1.0.6", ""),  # two alike may be two
        (b.fleet_spec(), ((A,), (A,)), "10.1.0.6", ""),
    ],
)
def test_a_host_is_beside_another_where_the_spec_says_that_they_share_a_network(
    of: FleetSpec, networks: tuple[tuple[str, ...], tuple[str, ...]], address: str, where: str
) -> None:
    fleet = b.fleet("lab")
    ssh = of.configuration.ssh_config
    addresses = [each.internal_ip or "" for each in ssh.each] if ssh else ["", ""]

    def host(num: int, address: str) -> Instance:
        place = OnPrem(hostname=f"h{num}", port=22, internal_ip=addresses[num])
        return b.host(num, fleet, host=place, internal_ip=address, networks=networks[num])

    first, second = host(0, "10.1.0.5"), host(1, address)
    assert beside(first, second, of) == where
    assert beside(first, second.with_(fleet_id="another"), of) == "", "only within a fleet is it said"
    assert beside(first, second.with_(host=None), of) == ""


@pytest.mark.parametrize(
    ("address", "network", "inside"),
    [
        ("10.1.0.5", "10.1.0.0/24", True),
        ("10.1.0.5", "10.1.0.9/24", True),  # as a person may write it
        ("10.1.1.5", "10.1.0.0/24", False),
        ("nonsense", "10.1.0.0/24", False),
        ("10.1.0.5", "nonsense", False),
        ("", "", False),
    ],
)
def test_an_address_is_within_a_network(address: str, network: str, inside: bool) -> None:
    assert within(address, network) is inside

"""Capacity reservation groups, and what a machine that names one must not do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.offers import Availability
from chalicelib.errors import InsufficientCapacity, Transient, Unfit
from tests.backends.azure.account import GPU, SMALL, Account
from tests.backends.azure.fake.reservations import RESOURCE_GROUP
from tests.backends.azure.fake.shop import SIZES, quota
from tests.backends.azure.traps.common import failing
from tests.backends.conformance.requests import group_request_for
from tests.backends.fakes.books import GONE
from tests.backends.fakes.script import Fault

GROUP = f"{RESOURCE_GROUP}/providers/Microsoft.Compute/capacityReservationGroups/Reserved-0"


def what_is_reserved_counts_against_no_quota(account: Account) -> None:
    account.fake.script.limits[quota("westeurope", SIZES[GPU].family)] = 0
    name = account.fake.reserve("westeurope", "1", GPU, 1)
    assert account.offer(GPU).availability is Availability.no_quota
    (offer,) = account.offered_in(name)
    assert offer.availability is Availability.available and offer.terms.cluster is None
    made = account.bought_in(name)
    assert made.facts["body"]["properties"]["capacityReservation"] == {"capacityReservationGroup": {"id": GROUP}}


def a_full_zone_of_a_group_is_left_for_its_others(account: Account) -> None:
    """Azure would put the machine where there is any room, within the usual quotas."""
    name = account.fake.reserve("westeurope", "1", SMALL, 1)
    account.fake.add_member(GROUP, "westeurope", "3", SMALL, 1)
    assert account.offered_in(name)[0].availability_zones == ("westeurope-1", "westeurope-3")
    zones = [account.bought_in(name, f"n{at}").facts["zones"] for at in range(2)]
    assert zones == [["1"], ["3"]] and account.provider.in_reservation(name) == 2
    assert account.offered_in(name)[0].availability is Availability.unknown
    with pytest.raises(InsufficientCapacity, match="is full"):
        account.bought_in(name, "n2")
    assert len(list(account.fake.books.existing("vm"))) == 2


def a_group_is_for_those_who_name_it(account: Account) -> None:
    """An open one takes whoever comes, and a block has rules of its own."""
    for kind in ("Open", "Block"):
        assert not account.offered_in(account.fake.reserve("westeurope", "1", SMALL, 1, reservationType=kind))
    name = account.fake.reserve("westeurope", "1", SMALL, 1, reservationType="Targeted")
    account.made("two")
    assert account.provider.in_reservation(name) == 0 and account.offered_in(name)


def a_reservation_of_later_is_shown_and_not_used(account: Account) -> None:
    name = account.fake.reserve("westeurope", "1", SMALL, 1, "scheduled")
    assert account.offered_in(name)[0].availability is Availability.not_available
    with pytest.raises(Unfit, match=rf"{name} has no {SMALL} now: it has nothing in westeurope"):
        account.bought_in(name)


def neither_spot_machines_nor_clusters_are_in_a_group(account: Account) -> None:
    name = account.fake.reserve("westeurope", "1", GPU, 1)
    assert not any(each.instance.resources.spot for each in account.offered_in(name))
    with pytest.raises(Unfit, match="neither spot machines"):
        list(account.backend.create(replace(account.request(size=GPU, spot=True), reservation=name)))
    with pytest.raises(Unfit, match="can't be kept close together"):
        account.backend.create_group(group_request_for(account.offered_in(name)[0]))


def groups_that_cant_be_read_are_none(account: Account) -> None:
    name = account.fake.reserve("westeurope", "1", SMALL, 1)
    listing = "CapacityReservationGroups_list_by_subscription"
    account.fake.script.faults.append(Fault(listing, failing("AuthorizationFailed", status=403)))
    assert account.offered_in(name) == [] and account.offer()
    account.fake.script.faults.append(Fault(listing, failing("InternalServerError", status=500)))
    with pytest.raises(Transient):
        account.backend.offers()


def a_group_that_is_deleted_meanwhile_hides_no_others(account: Account) -> None:
    name = account.fake.reserve("westeurope", "1", SMALL, 1)
    other = account.fake.reserve("westeurope", "1", SMALL, 1)
    gone = account.fake.existing("capacity group", GROUP)
    assert gone is not None
    members = "CapacityReservations_list_by_capacity_reservation_group"
    account.fake.script.faults.append(Fault(members, failing("ResourceNotFound", status=404)))
    assert [len(account.offered_in(other)), gone.state(account.clock.now()) is GONE] == [1, False]
    account.fake.dissolve(name)
    with pytest.raises(Unfit, match=name):
        list(account.backend.create(replace(account.request(), reservation=name)))


def a_group_whose_members_cant_be_read_hides_nothing_else(account: Account) -> None:
    account.fake.reserve("westeurope", "1", SMALL, 1)
    account.fake.reserve("westeurope", "1", SMALL, 1)
    members = "CapacityReservations_list_by_capacity_reservation_group"
    account.fake.script.faults.append(Fault(members, failing("AuthorizationFailed", status=403)))
    offers = account.backend.offers()
    assert len({each.reservation for each in offers if each.reservation}) == 1
    assert any(not each.reservation for each in offers)

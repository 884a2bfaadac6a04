"""What goes on costing money on Nebius: each trap with the mistake that walks into it, which the check must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, inside, request_for, volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.fakes.script import Cut, Fault
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.provider import INSTANCES, InProcess, NebiusProvider, config
from tests.backends.test_nebius import all_offers

CPU, ONE, EIGHT = "cpu-d3 4vcpu-16gb", "gpu-h100-sxm 1gpu-16vcpu-200gb", "gpu-h100-sxm 8gpu-128vcpu-1600gb"
Body = Mapping[str, Any]


class Account:
    def __init__(self, mistake: type[NebiusClient]) -> None:
        self.clock = Clock()
        self.fake = Nebius(self.clock.now)
        client = mistake(config().creds, self.clock.now, InProcess(self.fake))
        self.backend = NebiusBackend(config(), client, self.clock.now)

    def offer(self, name: str, *, spot: bool = False) -> Offer:
        found = (each for each in all_offers() if each.region == "eu-north1" and each.instance.name == name)
        return next(each for each in found if each.instance.resources.spot == spot)

    def running(self, name: str = CPU, *, spot: bool = False) -> list[Handle]:
        made = list(self.backend.create(request_for(self.offer(name, spot=spot))))
        self.clock.passes(60)
        assert self.backend.describe(made).state == "running"
        return made

    def taken_back(self) -> list[Handle]:
        made = self.running(ONE, spot=True)
        NebiusProvider(self.fake).reclaim(made)
        self.clock.passes(120)
        with pytest.raises(Gone):
            self.backend.describe(made)
        return made

    def swept(self) -> None:
        """By what is listed alone, as if nobody knew any handle."""
        end_all(self.backend, self.clock.passes, [each.handle for each in self.backend.list_owned()])
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        self.clock.passes(60)
        assert self.fake.billed() == 0.0 and not NebiusProvider(self.fake).existing()


# --- the checks -------------------------------------------------------------------------------------------------------


def a_machine_ends_with_its_disk(account: Account) -> None:
    end_all(account.backend, account.clock.passes, account.running())
    account.nothing_is_left()


def a_machine_is_swept_with_its_disk(account: Account) -> None:
    account.running()
    account.swept()


def a_disk_without_its_machine_is_swept(account: Account) -> None:
    account.running()
    next(account.fake.books.existing("vm")).goes(account.clock.now(), (0, None))
    account.swept()


def a_machine_that_was_taken_back_is_deleted(account: Account) -> None:
    end_all(account.backend, account.clock.passes, account.taken_back())
    account.nothing_is_left()


def a_machine_that_was_taken_back_is_swept(account: Account) -> None:
    account.taken_back()
    account.swept()


def a_machine_that_was_refused_late_is_deleted(account: Account) -> None:
    account.fake.short.add(CPU)
    made = list(account.backend.create(request_for(account.offer(CPU))))
    account.clock.passes(60)
    with pytest.raises(Gone) as gone:
        account.backend.describe(made)
    assert gone.value.refused is InsufficientCapacity
    end_all(account.backend, account.clock.passes, made)
    account.nothing_is_left()


def a_machine_whose_creation_was_lost_is_there_once(account: Account) -> None:
    account.fake.script.lag = 60_000_000
    account.fake.script.faults.append(Fault(f"{INSTANCES}.Create", Cut, when="after"))
    request = request_for(account.offer(CPU))
    with pytest.raises(Transient):
        list(account.backend.create(request))
    made = list(account.backend.create(request))
    assert len(list(account.fake.books.existing("vm"))) == 1
    account.clock.passes(120)
    end_all(account.backend, account.clock.passes, made)
    account.nothing_is_left()


def a_machine_whose_end_was_lost_is_ended(account: Account) -> None:
    made = account.running()
    account.fake.script.faults.append(Fault(f"{INSTANCES}.Delete", Cut))
    end_all(account.backend, account.clock.passes, made)
    account.nothing_is_left()


def a_machine_that_doesnt_show_yet_is_not_called_gone(account: Account) -> None:
    account.fake.script.lag = account.backend.facts.visibility_lag + 10 * SECOND  # and its creation isn't over
    made = list(account.backend.create(request_for(account.offer(CPU))))
    end_all(account.backend, account.clock.passes, made)
    account.nothing_is_left()


def a_stopped_machine_isnt_started_again(account: Account) -> None:
    account.running()
    (machine,) = account.fake.books.existing("vm")
    assert machine.facts["spec"].get("recovery_policy") == "FAIL"
    account.swept()


def a_machine_costs_what_its_offer_says(account: Account) -> None:
    """Reserved capacity and addresses that stay aren't part of it."""
    offer = account.offer(ONE, spot=True)
    made = account.running(ONE, spot=True)
    assert account.fake.billed() == pytest.approx(offer.price, rel=1e-3)
    (machine,) = account.fake.books.existing("vm")
    assert machine.facts["spec"].get("reservation_policy") == {"policy": "FORBID"}
    end_all(account.backend, account.clock.passes, made)
    account.nothing_is_left()


def a_cluster_goes_with_its_last_machine(account: Account) -> None:
    group = account.backend.create_group(group_request_for(account.offer(EIGHT)))
    made = list(account.backend.create(inside(request_for(account.offer(EIGHT)), group)))
    account.clock.passes(60)
    (owned,) = account.backend.list_owned_groups()
    end_all(account.backend, account.clock.passes, made)
    with pytest.raises(Gone):
        for _ in range(3):
            account.backend.delete_group(owned.handle)
    account.nothing_is_left()


def a_deleted_disk_is_gone(account: Account) -> None:
    """It is billed with or without machines."""
    made = account.backend.create_volume(volume_request("eu-north1"))
    account.clock.passes(60)
    assert account.fake.billed() > 0 and [each.handle for each in account.backend.list_owned_volumes()] == [made]
    with pytest.raises(Gone):
        for _ in range(3):
            account.backend.delete_volume(made)
            account.clock.passes(60)
    account.nothing_is_left()


# --- the mistakes -----------------------------------------------------------------------------------------------------


class Mistake(NebiusClient):
    """Calls that are sent as they are, but for what a mistake gets wrong."""

    def changed(self, service: str, method: str, body: Body) -> Body:
        return body

    def call(self, service: str, method: str, body: Body, **more: Any) -> dict[str, Any]:
        return super().call(service, method, self.changed(service, method, body), **more)


class MakesDisksByThemselves(Mistake):
    """And leaves them, since nobody has a handle of one."""

    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        managed = body["spec"]["boot_disk"]["managed_disk"]
        disk = {"metadata": {**body["metadata"], "labels": {}}, "spec": managed["spec"]}
        made = super().call("compute.v1.DiskService", "Create", disk, key=f"disk-{body['metadata']['name']}")
        boot = {"attach_mode": "READ_WRITE", "existing_disk": {"id": made["resource_id"]}}
        return {**body, "spec": {**body["spec"], "boot_disk": boot}}


class LabelsNoDisks(Mistake):
    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        boot = body["spec"]["boot_disk"]
        managed = {**boot["managed_disk"], "labels": {}, "name": "boot"}
        return {**body, "spec": {**body["spec"], "boot_disk": {**boot, "managed_disk": managed}}}


class LabelsNoMachines(Mistake):
    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        return {**body, "metadata": {**body["metadata"], "labels": {}, "name": "machine"}}


class ListsOnly(Mistake):
    states: tuple[str, ...] = ()

    def listed(self, service: str, body: Body, **more: Any) -> Iterator[dict[str, Any]]:
        found = super().listed(service, body, **more)
        if service != "compute.v1.InstanceService":
            return found
        return (each for each in found if each["status"]["state"] in self.states)


class ListsOnlyWhatRuns(ListsOnly):
    states = ("CREATING", "STARTING", "RUNNING")


class ListsNoDisks(Mistake):
    def listed(self, service: str, body: Body, **more: Any) -> Iterator[dict[str, Any]]:
        return iter(()) if service == "compute.v1.DiskService" else super().listed(service, body, **more)


class ListsNoClusters(Mistake):
    def listed(self, service: str, body: Body, **more: Any) -> Iterator[dict[str, Any]]:
        return iter(()) if service == "compute.v1.GpuClusterService" else super().listed(service, body, **more)


class ReadsNoOperations(Mistake):
    def listed(self, service: str, body: Body, **more: Any) -> Iterator[dict[str, Any]]:
        return iter(()) if service == "common.v1.OperationService" else super().listed(service, body, **more)


class DeletesNothing(Mistake):
    def call(self, service: str, method: str, body: Body, **more: Any) -> dict[str, Any]:
        if method == "Delete":
            raise Gone("so it believes")
        return super().call(service, method, body, **more)


class TakesNoAnswerForTheEnd(Mistake):
    def call(self, service: str, method: str, body: Body, **more: Any) -> dict[str, Any]:
        try:
            return super().call(service, method, body, **more)
        except Transient as error:
            raise Gone(str(error)) if method == "Delete" else error from None


class UsesANewKeyEachTime(Mistake):
    """And another name."""

    number = 0

    def call(self, service: str, method: str, body: Body, **more: Any) -> dict[str, Any]:
        self.number += 1
        return super().call(service, method, body, **{**more, "key": f"key-{self.number}" if "key" in more else ""})

    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        boot = body["spec"]["boot_disk"]
        name = f"{body['metadata']['name']}-{self.number}"
        disk = {**boot, "managed_disk": {**boot["managed_disk"], "name": name}}
        return {"metadata": {**body["metadata"], "name": name}, "spec": {**body["spec"], "boot_disk": disk}}


class Without(Mistake):
    """A field of the request."""

    field = ""

    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        spec = {name: value for name, value in body["spec"].items() if name != self.field}
        return {**body, "spec": spec}


class LetsNebiusStartThemAgain(Without):
    field = "recovery_policy"


class UsesReservedCapacity(Without):
    field = "reservation_policy"


class BuysOnDemand(Mistake):
    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        spec = {
            name: value for name, value in body["spec"].items() if name not in ("preemptible", "follows_spot_price")
        }
        return {**body, "spec": spec}


class KeepsAddresses(Mistake):
    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        (interface,) = body["spec"]["network_interfaces"]
        kept = {**interface, "public_ip_address": {"static": True}}
        return {**body, "spec": {**body["spec"], "network_interfaces": [kept]}}


class BuysLargerDisks(Mistake):
    def changed(self, service: str, method: str, body: Body) -> Body:
        if (service, method) != ("compute.v1.InstanceService", "Create"):
            return body
        boot = body["spec"]["boot_disk"]
        spec = {**boot["managed_disk"]["spec"], "size_gibibytes": "1000"}
        disk = {**boot, "managed_disk": {**boot["managed_disk"], "spec": spec}}
        return {**body, "spec": {**body["spec"], "boot_disk": disk}}


TRAPS: Sequence[tuple[Callable[[Account], None], type[NebiusClient]]] = [
    (a_machine_ends_with_its_disk, MakesDisksByThemselves),
    (a_machine_ends_with_its_disk, DeletesNothing),
    (a_machine_is_swept_with_its_disk, LabelsNoMachines),
    (a_machine_is_swept_with_its_disk, MakesDisksByThemselves),
    (a_disk_without_its_machine_is_swept, ListsNoDisks),
    (a_disk_without_its_machine_is_swept, LabelsNoDisks),
    (a_machine_that_was_taken_back_is_deleted, DeletesNothing),
    (a_machine_that_was_taken_back_is_swept, ListsOnlyWhatRuns),
    (a_machine_that_was_refused_late_is_deleted, ReadsNoOperations),
    (a_machine_that_was_refused_late_is_deleted, DeletesNothing),
    (a_machine_whose_creation_was_lost_is_there_once, UsesANewKeyEachTime),
    (a_machine_whose_end_was_lost_is_ended, TakesNoAnswerForTheEnd),
    (a_machine_that_doesnt_show_yet_is_not_called_gone, ReadsNoOperations),
    (a_stopped_machine_isnt_started_again, LetsNebiusStartThemAgain),
    (a_machine_costs_what_its_offer_says, UsesReservedCapacity),
    (a_machine_costs_what_its_offer_says, BuysOnDemand),
    (a_machine_costs_what_its_offer_says, KeepsAddresses),
    (a_machine_costs_what_its_offer_says, BuysLargerDisks),
    (a_deleted_disk_is_gone, DeletesNothing),
    (a_deleted_disk_is_gone, ListsNoDisks),
    (a_cluster_goes_with_its_last_machine, ListsNoClusters),
    (a_cluster_goes_with_its_last_machine, DeletesNothing),
]


@pytest.mark.parametrize("check", list(dict.fromkeys(check for check, _ in TRAPS)))
def test_nothing_goes_on_costing_money(check: Callable[[Account], None]) -> None:
    check(Account(NebiusClient))


@pytest.mark.parametrize(("check", "mistake"), TRAPS)
def test_the_mistake_is_noticed(check: Callable[[Account], None], mistake: type[NebiusClient]) -> None:
    with pytest.raises((AssertionError, BackendError, pytest.fail.Exception, ValueError)):
        check(Account(mistake))

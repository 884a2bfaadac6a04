"""What goes on costing money on Crusoe: each trap with the mistake that walks into it, which the check must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.crusoe.client import DISKS, PARTITIONS, VMS, Body, CrusoeClient
from chalicelib.backends.crusoe.client import Path as Place
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError, Gone, Transient
from tests.backends.clock import Clock
from tests.backends.conformance.requests import group_request_for, request_for, volume_request
from tests.backends.conformance.suite import end_all
from tests.backends.crusoe.fake import Crusoe, capacity_of
from tests.backends.crusoe.provider import CONFIG, CrusoeProvider, prices
from tests.backends.fakes.script import Cut, Fault
from tests.backends.fakes.transport import sender

EAST, CPU, H100 = "us-east1-a", "c1a.2x", "h100-80gb-sxm-ib.8x"
GIB = 1024


class Account:
    def __init__(self, mistake: type[CrusoeClient], folder: Path) -> None:
        self.clock = Clock()
        self.fake = Crusoe(self.clock.now)
        client = mistake(CONFIG.creds, CONFIG.project_id, self.clock.now, send=sender(self.fake), burst=10_000)
        self.backend = CrusoeBackend(CONFIG, client, self.clock.now, prices(folder))

    def request(self, name: str = CPU, *, gib: int = 0) -> CreateRequest:
        """With a data disk of so many GiB."""
        found = (each for each in self.backend.offers() if (each.instance.name, each.region) == (name, EAST))
        request = request_for(next(each for each in found if each.elastic == bool(gib)))
        return replace(request, disk_mib=gib * GIB) if gib else request

    def running(self, request: CreateRequest) -> list[Handle]:
        made = list(self.backend.create(request))
        self.clock.passes(60)
        assert self.backend.describe(made).state == "running"
        return made

    def swept(self) -> None:
        """By what is listed alone, as if nobody knew any handle."""
        end_all(self.backend, self.clock.passes, [each.handle for each in self.backend.list_owned()])
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        self.clock.passes(60)
        assert self.fake.billed() == 0.0 and not CrusoeProvider(self.fake).existing()


# --- the checks -------------------------------------------------------------------------------------------------------


def a_machine_ends_with_its_data_disk(account: Account) -> None:
    end_all(account.backend, account.clock.passes, account.running(account.request(gib=200)))
    account.nothing_is_left()


def a_machine_is_swept_with_its_data_disk(account: Account) -> None:
    account.running(account.request(gib=200))
    account.swept()


def a_machine_is_swept_with_its_partition(account: Account) -> None:
    account.running(account.request(H100))
    account.swept()


def a_disk_without_a_machine_is_swept(account: Account) -> None:
    """Its machine found no room."""
    account.fake.script.limits[capacity_of(EAST, CPU)] = 0
    list(account.backend.create(account.request(gib=200)))
    account.clock.passes(60)
    assert account.fake.billed() > 0
    account.swept()


def many_machines_are_swept(account: Account) -> None:
    """On more than one page."""
    account.fake.script.page = 2
    offer = account.request().offer
    for n in range(5):
        account.running(request_for(offer, f"n{n}"))
    account.swept()


def a_machine_that_was_stopped_is_removed(account: Account) -> None:
    made = account.running(account.request(gib=200))
    next(account.fake.books.existing("vm")).goes(account.clock.now(), (0, "STATE_STOPPED"))
    with pytest.raises(Gone):
        account.backend.describe(made)
    account.swept()


def a_creation_whose_answer_was_lost_is_found(account: Account) -> None:
    request = account.request(gib=200)
    for operation in ("createDisk", "createInstance"):
        account.fake.unique_names = False
        account.fake.script.faults.append(Fault(operation, Cut, when="after"))
        with pytest.raises(Transient):
            list(account.backend.create(request))
        account.clock.passes(10)
    list(account.backend.create(request))
    assert len(list(account.fake.books.existing("vm"))) == 1, "one was bought"
    assert len(CrusoeProvider(account.fake).existing()) == 2
    account.swept()


def an_end_whose_answer_was_lost_is_asked_for_again(account: Account) -> None:
    made = account.running(account.request(gib=200))
    account.fake.script.faults += [Fault("deleteInstance", Cut), Fault("deleteDisk", Cut)]
    end_all(account.backend, account.clock.passes, made)
    account.nothing_is_left()


def a_permission_that_lacks_isnt_an_end(account: Account) -> None:
    made = account.running(account.request())
    account.fake.script.faults.append(Fault("getInstance", CrusoeProvider.errors["MissingPermission"]))
    with pytest.raises(BackendError) as error:
        account.backend.terminate(made[0])
    assert not isinstance(error.value, Gone)
    account.swept()


def a_machine_that_doesnt_show_yet_isnt_gone(account: Account) -> None:
    account.fake.script.lag = 8_000_000
    made = list(account.backend.create(account.request()))
    with pytest.raises(Transient):
        account.backend.terminate(made[0])
    account.clock.passes(10)
    account.swept()


def a_group_is_deleted(account: Account) -> None:
    group = account.backend.create_group(group_request_for(account.request(H100).offer))
    account.clock.passes(10)
    assert [each.handle for each in account.backend.list_owned_groups()] == [group]
    account.backend.delete_group(group)
    account.nothing_is_left()


def a_volume_is_deleted(account: Account) -> None:
    volume = account.backend.create_volume(volume_request(EAST))
    account.clock.passes(10)
    assert [each.handle for each in account.backend.list_owned_volumes()] == [volume]
    with pytest.raises(Gone):
        for _ in range(3):
            account.backend.delete_volume(volume)
            account.clock.passes(5)
    account.nothing_is_left()


def a_volume_isnt_swept_with_machines(account: Account) -> None:
    account.backend.create_volume(volume_request(EAST))
    account.running(account.request())
    end_all(account.backend, account.clock.passes, [each.handle for each in account.backend.list_owned()])
    assert [each.kind for each in account.fake.books.existing() if each.kind != "operation"] == ["disk"]


def an_offer_costs_what_is_billed(account: Account) -> None:
    request = account.request(gib=200)
    sized = request.offer.sized(200)
    account.running(replace(request, offer=sized))
    assert account.fake.billed() == pytest.approx(sized.price, abs=1e-6)


# --- the mistakes -----------------------------------------------------------------------------------------------------


class Mistake(CrusoeClient):
    """Calls that are sent as they are, but for what a mistake gets wrong."""

    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, body

    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        method, path_now, body = self.changed(method, path, body)
        return super().call(method, *path_now, body=body, **more)


def is_about(path: Sequence[str], what: Place) -> bool:
    return tuple(path[: len(what)]) == tuple(what)


def without(place: Place, name: str) -> type[CrusoeClient]:
    """Lists none of these."""

    class ListsNone(Mistake):
        def listed(self, path: Place, **query: str) -> Iterator[Body]:
            return iter(()) if tuple(path) == tuple(place) else super().listed(path, **query)

    ListsNone.__name__ = ListsNone.__qualname__ = name
    return ListsNone


def leaving(place: Place, name: str) -> type[CrusoeClient]:
    """Believes that these end by themselves."""

    class Leaves(Mistake):
        def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
            if method == "DELETE" and is_about(path, place):
                raise Gone("so it believes")
            return super().call(method, *path, body=body, **more)

    Leaves.__name__ = Leaves.__qualname__ = name
    return Leaves


class StopsMachines(Mistake):
    """And doesn't delete them."""

    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        if method == "DELETE" and is_about(path, VMS):
            return "GET", path, None
        return method, path, body


class ReadsOnePage(Mistake):
    def listed(self, path: Place, **query: str) -> Iterator[Body]:
        return iter(self.call("GET", *path, query=query)["items"])


class ListsOnlyWhatRuns(Mistake):
    def listed(self, path: Place, **query: str) -> Iterator[Body]:
        return (each for each in super().listed(path, **query) if each.get("state", "RUNNING").endswith("RUNNING"))


class ListsSystemsDisksAlone(Mistake):
    """As if all were."""

    def listed(self, path: Place, **query: str) -> Iterator[Body]:
        found = super().listed(path, **query)
        return (each for each in found if tuple(path) != DISKS or each["name"].endswith("-os"))


class LooksForNoNames(Mistake):
    """Before it creates."""

    def listed(self, path: Place, **query: str) -> Iterator[Body]:
        return iter(()) if {"names", "disk_names"} & query.keys() else super().listed(path, **query)


class NamesMachinesAnew(Mistake):
    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, {**body, "name": "machine"} if (method, tuple(path)) == ("POST", VMS) else body


class NamesDisksAnew(Mistake):
    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, {**body, "name": "disk"} if (method, tuple(path)) == ("POST", DISKS) else body


class NamesPartitionsAnew(Mistake):
    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, {**body, "name": "partition"} if (method, tuple(path)) == ("POST", PARTITIONS) else body


class TakesNoAnswerForTheEnd(Mistake):
    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        try:
            return super().call(method, *path, body=body, **more)
        except Transient as error:
            raise Gone(str(error)) if method == "DELETE" else error from None


class TakesEvery403ForTheEnd(Mistake):
    def found(self, path: Place, identity: str, **query: str) -> Body | None:
        try:
            return super().found(path, identity, **query)
        except BackendError:
            return None


class ForgetsWhenItCreated(Mistake):
    def call(self, method: str, *path: str, body: Any = None, **more: Any) -> Any:
        answer = super().call(method, *path, body=body, **more)
        if isinstance(answer, Mapping) and "operation" in answer:
            return {"operation": {**answer["operation"], "started_at": "2020-01-01T00:00:00Z"}}
        return answer


class BuysLargerDisks(Mistake):
    def changed(self, method: str, path: Sequence[str], body: Any) -> tuple[str, Sequence[str], Any]:
        return method, path, {**body, "size": "1000GiB"} if (method, tuple(path)) == ("POST", DISKS) else body


LeavesDisks, LeavesPartitions = leaving(DISKS, "LeavesDisks"), leaving(PARTITIONS, "LeavesPartitions")
LeavesMachines = leaving(VMS, "LeavesMachines")
ListsNoDisks, ListsNoMachines = without(DISKS, "ListsNoDisks"), without(VMS, "ListsNoMachines")
ListsNoPartitions = without(PARTITIONS, "ListsNoPartitions")

TRAPS: Sequence[tuple[Callable[[Account], None], type[CrusoeClient]]] = [
    (a_machine_ends_with_its_data_disk, StopsMachines),
    (a_machine_ends_with_its_data_disk, LeavesMachines),
    (a_machine_ends_with_its_data_disk, LeavesDisks),
    (a_machine_is_swept_with_its_data_disk, ListsNoDisks),
    (a_machine_is_swept_with_its_data_disk, ListsNoMachines),
    (a_machine_is_swept_with_its_data_disk, NamesMachinesAnew),
    (a_machine_is_swept_with_its_data_disk, NamesDisksAnew),
    (a_machine_is_swept_with_its_partition, ListsNoPartitions),
    (a_machine_is_swept_with_its_partition, LeavesPartitions),
    (a_machine_is_swept_with_its_partition, NamesPartitionsAnew),
    (a_disk_without_a_machine_is_swept, ListsNoDisks),
    (a_disk_without_a_machine_is_swept, ListsSystemsDisksAlone),
    (many_machines_are_swept, ReadsOnePage),
    (a_machine_that_was_stopped_is_removed, ListsOnlyWhatRuns),
    (a_creation_whose_answer_was_lost_is_found, LooksForNoNames),
    (a_creation_whose_answer_was_lost_is_found, NamesMachinesAnew),
    (an_end_whose_answer_was_lost_is_asked_for_again, TakesNoAnswerForTheEnd),
    (a_permission_that_lacks_isnt_an_end, TakesEvery403ForTheEnd),
    (a_machine_that_doesnt_show_yet_isnt_gone, ForgetsWhenItCreated),
    (a_group_is_deleted, LeavesPartitions),
    (a_group_is_deleted, ListsNoPartitions),
    (a_volume_is_deleted, LeavesDisks),
    (a_volume_is_deleted, ListsNoDisks),
    (a_volume_isnt_swept_with_machines, NamesMachinesAnew),
    (an_offer_costs_what_is_billed, BuysLargerDisks),
]


@pytest.mark.parametrize("check", list(dict.fromkeys(check for check, _ in TRAPS)))
def test_nothing_goes_on_costing_money(check: Callable[[Account], None], tmp_path: Path) -> None:
    check(Account(CrusoeClient, tmp_path))


@pytest.mark.parametrize(("check", "mistake"), TRAPS)
def test_the_mistake_is_noticed(check: Callable[[Account], None], mistake: type[CrusoeClient], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, BackendError, pytest.fail.Exception)):
        check(Account(mistake, tmp_path))

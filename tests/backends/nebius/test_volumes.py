"""Disks of Nebius: what the suite for every backend doesn't ask."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.nebius.volumes import device_id
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import AlreadyThere, Gone, InUse, NotYet, QuotaExceeded, Transient, Unfit
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for, volume_request
from tests.backends.fakes.books import Resource
from tests.backends.fakes.script import Cut, Fault
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.kinds import CPU, offer
from tests.backends.nebius.provider import INSTANCES, answer
from tests.backends.nebius.shop import DISK_MONTH

DISKS, NORTH = "nebius.compute.v1.DiskService", "eu-north1"


class Site:
    """A running machine, and a disk."""

    def __init__(self, backend: NebiusBackend, fake: Nebius, clock: Clock) -> None:
        self.backend, self.fake, self.clock = backend, fake, clock
        self.machine = self.bought("one")
        self.disk = backend.create_volume(volume_request(NORTH))
        clock.passes(60)

    def bought(self, name: str) -> list[Handle]:
        return list(self.backend.create(request_for(offer(CPU), name)))

    def seen(self) -> ProviderDisk:
        return self.backend.describe_volume(self.disk)

    def attached(self, *, read_only: bool = False) -> ProviderDisk:
        self.backend.attach_volume(self.disk, self.machine, read_only=read_only)
        self.clock.passes(60)
        return self.seen()

    def added(self, **facts: Any) -> Resource:
        """Somebody's disk."""
        spec = {"type": "NETWORK_SSD", "size_gibibytes": "10"}
        made = self.fake._add_disk("project-e00north", "theirs", {}, spec, "")
        made.facts |= facts
        self.clock.passes(60)
        return made

    @property
    def specification(self) -> dict[str, Any]:
        (found,) = [each for each in self.fake.books.existing("vm") if each.id == self.machine[0].id]
        return dict(found.facts["spec"])


@pytest.fixture
def site(backend: NebiusBackend, fake: Nebius, clock: Clock) -> Site:
    return Site(backend, fake, clock)


def test_a_disk_whose_size_isnt_known_yet_has_the_size_that_was_asked_for(
    backend: NebiusBackend, fake: Nebius, clock: Clock
) -> None:
    site = Site(backend, fake, clock)

    def new(body: dict[str, Any]) -> object:
        return {**body, "status": {"state": "CREATING"}}

    fake.script.faults.append(Fault(f"{DISKS}.Get", new))
    found = site.seen()
    assert (found.state, found.size_gib) == ("creating", site.seen().size_gib)


def test_nothing_else_of_a_machine_changes(site: Site) -> None:
    before = site.specification
    other = site.backend.create_volume(volume_request(NORTH, "other"))
    site.clock.passes(60)
    site.attached()
    site.backend.attach_volume(other, site.machine)
    site.clock.passes(60)
    assert [each["existing_disk"]["id"] for each in site.specification["secondary_disks"]] == [site.disk.id, other.id]
    for disk in (site.disk, other):
        site.backend.detach_volume(disk, site.machine)
        site.clock.passes(60)
    assert {**site.specification, "secondary_disks": []} == {**before, "secondary_disks": []}
    masks = [call.headers.get("x-resetmask", "") for call in site.fake.calls_of(f"{INSTANCES}.Update")]
    assert masks == ["", "", "", "spec.secondary_disks"], "an empty list says nothing by itself"


def test_the_agent_finds_a_disk_by_the_id_that_its_machine_has_for_it(site: Site) -> None:
    [(machine, device)] = site.attached().attached_to
    (attached,) = site.specification["secondary_disks"]
    assert machine == site.machine[0].id and device is not None
    assert device.by_id == f"virtio-{attached['device_id']}" and len(attached["device_id"]) <= 20
    assert device_id("computedisk-a") != device_id("computedisk-b")


def test_a_disk_is_being_attached_from_the_request_on(site: Site) -> None:
    site.fake.attach = 30 * SECOND
    site.backend.attach_volume(site.disk, site.machine)
    assert (site.seen().attaching_to, site.seen().attached_to) == ((site.machine[0].id,), ())
    site.clock.passes(60)
    assert site.seen().attaching_to == () and site.seen().state == "in_use"


def test_two_changes_of_one_machine_at_once_lose_nothing(site: Site) -> None:
    """16: the second is asked for again, whichever way Nebius refuses it."""
    other = site.backend.create_volume(volume_request(NORTH, "other"))
    site.clock.passes(60)
    site.backend.attach_volume(site.disk, site.machine)
    with pytest.raises(NotYet, match="operation_conflict"):
        site.backend.attach_volume(other, site.machine)
    site.clock.passes(60)
    stale = Fault(f"{INSTANCES}.Get", _older)
    site.fake.script.faults.append(stale)
    with pytest.raises(NotYet, match="resource_conflict"):
        site.backend.attach_volume(other, site.machine)
    site.backend.attach_volume(other, site.machine)
    assert len(site.specification["secondary_disks"]) == 2


def _older(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "resource_version": "1"}}


def test_several_machines_read_one_disk_and_one_writes(site: Site) -> None:
    second = site.bought("two")
    site.clock.passes(60)
    site.attached(read_only=True)
    site.backend.attach_volume(site.disk, second, read_only=True)
    site.clock.passes(60)
    assert sorted(each for each, _ in site.seen().attached_to) == sorted([site.machine[0].id, second[0].id])
    third = site.bought("three")
    site.clock.passes(60)
    with pytest.raises(InUse):
        site.backend.attach_volume(site.disk, third)


def test_a_machine_that_starts_gets_its_disk_later(site: Site) -> None:
    with pytest.raises(NotYet, match="still starting"):
        site.backend.attach_volume(site.disk, site.bought("two"))


def test_a_disk_of_another_project_or_machine_isnt_registered(site: Site) -> None:
    theirs = site.added()
    assert site.backend.register_volume(theirs.id, NORTH, "").size_gib == 10
    theirs.facts["parent"] = "project-e00other"
    with pytest.raises(Gone, match="isn't in the project project-e00north"):
        site.backend.register_volume(theirs.id, NORTH, "")
    with pytest.raises(Unfit, match="different projects"):
        site.backend.attach_volume(site.disk.with_(id=theirs.id), site.machine)
    (boot,) = [each for each in site.fake.books.existing("disk") if each.facts["manager"] == site.machine[0].id]
    with pytest.raises(Gone, match="belongs to the machine"):
        site.backend.register_volume(boot.id, NORTH, "")


def test_whom_a_disk_is_offered_to_is_its_label(site: Site) -> None:
    theirs = site.added(labels={"dstack-projects": "main research"})
    assert site.backend.register_volume(theirs.id, NORTH, "").offered_to == ("main", "research")


def test_a_price_is_for_a_month_and_unknown_if_nobody_says_it(site: Site) -> None:
    assert site.seen().price == pytest.approx(DISK_MONTH, rel=1e-3)
    site.clock.passes(3600)
    site.fake.script.faults.append(Fault("*EstimateBatch", answer("UNAVAILABLE")))
    assert site.seen().price is None


def test_an_answer_that_is_lost_is_no_second_disk(site: Site) -> None:
    request = volume_request(NORTH, "other")
    site.fake.script.lag = 60 * SECOND
    site.fake.script.faults.append(Fault(f"{DISKS}.Create", Cut, when="after"))
    with pytest.raises(Transient):
        site.backend.create_volume(request)
    made = site.backend.create_volume(request)
    with pytest.raises(Transient, match="doesn't show"):
        site.backend.describe_volume(made)
    site.fake.keys.clear()
    with pytest.raises(Transient, match="doesn't show it yet"):
        site.backend.create_volume(request)
    site.clock.passes(60)
    assert site.backend.create_volume(request) == made
    (body,) = [each for each in site.fake.books.existing("disk") if each.id == made.id]
    body.facts["labels"] = {}
    with pytest.raises(AlreadyThere):
        site.backend.create_volume(request)


def test_a_quota_of_disks_has_its_numbers(site: Site) -> None:
    violation = {"quota": "compute.disk.size.network-ssd", "limit": "1", "requested": "2"}
    site.fake.script.faults.append(
        Fault(f"{DISKS}.Create", answer("RESOURCE_EXHAUSTED", "quota_failure", violations=[violation]))
    )
    with pytest.raises(QuotaExceeded, match="limit 1, requested 2"):
        site.backend.create_volume(volume_request(NORTH, "other"))


def test_a_disk_that_is_broken_has_failed(site: Site) -> None:
    (disk,) = [each for each in site.fake.books.existing("disk") if each.id == site.disk.id]
    disk.goes(site.clock.now(), (0, "ERROR"))
    assert site.seen().state == "failed"

"""What a backend with volumes must do. `BackendConformance` has these cases, for those whose facts grant them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.spi import Backend, ContainerMount, CreateRequest, Volumes
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.domain.owner import same_install
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import BackendError, Gone, InUse
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import INSTALL, PROJECT, request_for, volume_request
from tests.backends.conformance.suite import ENOUGH, Suite, end_all
from tests.harness.conformance import needs

MOUNTED_AT = "/data"


class Site:
    """A backend with volumes, and the waiting that its answers need."""

    def __init__(self, backend: Backend, request: CreateRequest, let_time_pass: LetPass) -> None:
        assert isinstance(backend, Volumes)
        self.backend: Any = backend
        self.let_time_pass, self._request = let_time_pass, request
        self.request = volume_request(request.offer.region)
        self.handle: Handle = backend.create_volume(self.request)
        self.disk = self.until(lambda disk: disk.state == "available")

    def until(self, is_so: Callable[[ProviderDisk], bool]) -> ProviderDisk:
        self.pass_lag()
        for _ in range(ENOUGH):
            disk: ProviderDisk = self.backend.describe_volume(self.handle)
            if is_so(disk):
                return disk
            self.let_time_pass(5.0)
        pytest.fail(f"{self.handle} never got there; it is {disk}")

    def pass_lag(self) -> None:
        self.let_time_pass(self.backend.facts.visibility_lag / 1_000_000)

    @property
    def zones(self) -> tuple[str, ...]:
        return self._request.zones or ()

    def machine(self, name: str = "one", zone: str = "") -> list[Handle]:
        """A machine where the volume is, or in that zone."""
        zone = zone or self.disk.zone
        zones = (zone,) if zone else None
        request = replace(self._request, token=derive(self._request.token, name), name=f"dstack-{name}", zones=zones)
        return self._running(request)

    def _running(self, request: CreateRequest) -> list[Handle]:
        made = list(self.backend.create(request))
        self.pass_lag()
        for _ in range(ENOUGH):
            if self.backend.describe(made).state == "running":
                return made
            self.let_time_pass(5.0)
        pytest.fail("the machine never ran")

    def container(self, name: str) -> list[Handle]:
        """One that mounts the volume."""
        request = request_for(self._request.offer, name)
        assert request.container is not None
        mounts = (ContainerMount(self.handle, MOUNTED_AT),)
        return self._running(replace(request, container=replace(request.container, mounts=mounts)))

    def attached(self, machine: Sequence[Handle]) -> ProviderDisk:
        self.backend.attach_volume(self.handle, machine)
        return self.until(lambda disk: on(disk, machine))

    def detached(self, machine: Sequence[Handle]) -> ProviderDisk:
        self.backend.detach_volume(self.handle, machine)
        return self.until(lambda disk: not on(disk, machine))

    def gone(self, handles: Sequence[Handle]) -> None:
        """Have the machine ended."""
        end_all(self.backend, self.let_time_pass, handles)

    def deleted(self) -> None:
        for _ in range(ENOUGH):
            try:
                self.backend.delete_volume(self.handle)
            except Gone:
                return
            self.let_time_pass(5.0)
        pytest.fail(f"{self.handle} is still there")


def on(disk: ProviderDisk, machine: Sequence[Handle]) -> bool:
    return bool({handle.id for handle in machine} & {each for each, _ in disk.attached_to})


class VolumeConformance(Suite):
    @pytest.fixture
    def site(self, backend: Backend, request_one: CreateRequest, let_time_pass: LetPass) -> Site:
        return Site(backend, request_one, let_time_pass)

    # --- create and find ---------------------------------------------------------------------------------------------

    @needs("volumes")
    def test_a_created_volume_is_as_requested(self, site: Site) -> None:
        assert site.disk.handle == site.handle
        assert site.disk.size_gib >= site.request.size_gib
        assert bool(site.disk.zone) == site.backend.facts.volume_zones
        assert site.disk.attached_to == ()
        assert Handle.model_validate_json(site.handle.model_dump_json()) == site.handle

    @needs("volumes")
    def test_one_token_makes_one_volume(self, site: Site) -> None:
        assert site.backend.create_volume(site.request) == site.handle
        site.pass_lag()
        assert [each.handle for each in site.backend.list_owned_volumes()] == [site.handle]

    @needs("volumes", "idempotent_create")
    def test_the_token_finds_at_once_the_volume_of_the_first_call(self, site: Site) -> None:
        request = volume_request(site.request.region, "fresh")
        assert site.backend.create_volume(request) == site.backend.create_volume(request)

    @needs("volumes")
    def test_another_epoch_is_another_volume(self, site: Site) -> None:
        assert site.backend.create_volume(volume_request(site.request.region, epoch=1)) != site.handle

    @needs("volumes")
    def test_the_listing_is_complete_and_names_the_owner(self, site: Site, offers: Sequence[Offer]) -> None:
        other = volume_request(site.request.region, "other", epoch=3)
        made = site.backend.create_volume(other)
        site.pass_lag()
        listed = {each.handle.id: each for each in site.backend.list_owned_volumes()}
        assert listed.keys() == {site.handle.id, made.id}
        owner = listed[made.id]
        assert same_install(owner.install, INSTALL) and (owner.project_id, owner.epoch) == (PROJECT, 3)
        assert [each.handle for each in site.backend.list_owned_volumes(owner.volume_id)] == [made]
        assert [each.handle for each in site.backend.list_owned_volumes(owner.volume_id, other.region)] == [made]
        elsewhere = next(offer.region for offer in offers if offer.region != other.region)
        assert list(site.backend.list_owned_volumes(owner.volume_id, elsewhere)) == []
        assert made not in [each.handle for each in site.backend.list_owned()]

    @needs("volumes")
    def test_an_existing_volume_is_found_by_its_id(self, site: Site) -> None:
        found = site.backend.register_volume(site.handle.id, site.request.region, "")
        assert found == site.disk
        assert site.backend.register_volume(site.handle.id, site.request.region, site.disk.zone) == site.disk
        for where in (("no-such-region", ""), (site.request.region, "no-such-zone")):
            with pytest.raises(Gone):
                site.backend.register_volume(site.handle.id, *where)

    @needs("volumes")
    def test_an_unknown_volume_is_gone(self, site: Site) -> None:
        machine, unknown = site.machine(), site.handle.with_(id="vol-no-such-thing")
        calls: list[Callable[[], object]] = [
            lambda: site.backend.register_volume(unknown.id, site.request.region, ""),
            lambda: site.backend.describe_volume(unknown),
            lambda: site.backend.attach_volume(unknown, machine),
            lambda: site.backend.detach_volume(unknown, machine),
            lambda: site.backend.delete_volume(unknown),
        ]
        for call in calls:
            with pytest.raises(Gone):
                call()

    # --- attach and detach -------------------------------------------------------------------------------------------

    @needs("volumes", "machines")
    def test_an_attached_volume_says_where_and_how_it_is_found(self, site: Site) -> None:
        machine = site.machine()
        disk = site.attached(machine)
        assert disk.state == "in_use"
        [(where, device)] = disk.attached_to
        assert where in {handle.id for handle in machine}
        assert device is not None and (device.serial or device.by_id or device.link or device.backing_file)

    @needs("volumes", "machines")
    def test_it_may_be_attached_twice_to_one_machine(self, site: Site) -> None:
        machine = site.machine()
        first = site.attached(machine)
        site.backend.attach_volume(site.handle, machine)
        assert site.backend.describe_volume(site.handle) == first

    @needs("volumes", "read_only_attach")
    def test_one_is_attached_so_that_nothing_can_write_it(self, site: Site) -> None:
        machine = site.machine()
        for read_only in (True, False):
            site.backend.attach_volume(site.handle, machine, read_only=read_only)
            [(_, device)] = site.until(lambda disk: on(disk, machine)).attached_to
            assert device is not None and device.read_only is read_only
            site.detached(machine)

    @needs("volumes", "machines")
    def test_one_that_is_attached_elsewhere_is_in_use(self, site: Site) -> None:
        first, second = site.machine(), site.machine("two")
        site.attached(first)
        if site.disk.multi_attach:
            both = site.attached(second)
            assert on(both, first) and on(both, second)
            return
        with pytest.raises(InUse):
            site.backend.attach_volume(site.handle, second)
        assert on(site.backend.describe_volume(site.handle), first)

    @needs("volumes", "volume_zones")
    def test_a_machine_in_another_zone_gets_none(self, site: Site) -> None:
        zones = [zone for zone in site.zones if zone != site.disk.zone]
        if zones:
            machine = site.machine("two", zones[0])
            with pytest.raises(BackendError) as refused:
                site.backend.attach_volume(site.handle, machine)
            assert not isinstance(refused.value, Gone)

    @needs("volumes", "machines")
    def test_it_may_be_detached_twice(self, site: Site) -> None:
        machine = site.machine()
        site.backend.detach_volume(site.handle, machine)
        site.attached(machine)
        assert site.detached(machine).state == "available"
        assert site.detached(machine).state == "available"

    @needs("volumes", "machines")
    def test_what_was_detached_can_be_attached_elsewhere(self, site: Site) -> None:
        first, second = site.machine(), site.machine("two")
        site.attached(first)
        site.detached(first)
        assert on(site.attached(second), second)

    @needs("volumes", "machines")
    def test_it_outlives_its_machine(self, site: Site) -> None:
        first, second = site.machine(), site.machine("two")
        site.attached(first)
        site.gone(first)
        assert site.until(lambda disk: not on(disk, first)).state == "available"
        assert on(site.attached(second), second)

    @needs("volumes", "machines")
    def test_a_machine_that_is_gone_gets_none(self, site: Site) -> None:
        machine = site.machine()
        site.gone(machine)
        with pytest.raises(BackendError) as refused:
            site.backend.attach_volume(site.handle, machine)
        assert not isinstance(refused.value, Gone)  # or the volume would count as lost
        site.backend.detach_volume(site.handle, machine)

    # --- of a container ----------------------------------------------------------------------------------------------

    @pytest.fixture
    def mounting(self, backend: Backend, offers: Sequence[Offer], let_time_pass: LetPass) -> Site:
        """Where containers are sold that can mount a volume."""
        able = [each for each in offers if "volumes" in each.terms.grants and not each.instance.resources.spot]
        return Site(backend, request_for(min(able, key=lambda offer: offer.price)), let_time_pass)

    @needs("volumes", "containers")
    def test_a_container_has_the_volumes_that_it_was_created_with(self, mounting: Site, provider: Provider) -> None:
        made = mounting.container("one")
        disk = mounting.until(lambda disk: on(disk, made))
        assert disk.state == "in_use"
        assert [(each.volume.id, each.path) for each in provider.container(made).mounts] == [
            (mounting.handle.id, MOUNTED_AT)
        ]
        mounting.backend.attach_volume(mounting.handle, made)
        assert mounting.backend.describe_volume(mounting.handle) == disk

    @needs("volumes", "containers")
    def test_a_volume_outlives_its_container(self, mounting: Site) -> None:
        first = mounting.container("one")
        mounting.until(lambda disk: on(disk, first))
        mounting.gone(first)
        assert mounting.until(lambda disk: not on(disk, first)).state == "available"
        second = mounting.container("two")
        assert on(mounting.until(lambda disk: on(disk, second)), second)

    @needs("volumes", "containers")
    def test_a_volume_of_a_container_is_not_deleted(self, mounting: Site) -> None:
        made = mounting.container("one")
        mounting.until(lambda disk: on(disk, made))
        with pytest.raises(InUse):
            mounting.backend.delete_volume(mounting.handle)
        mounting.gone(made)
        mounting.until(lambda disk: not on(disk, made))
        mounting.deleted()

    # --- delete ------------------------------------------------------------------------------------------------------

    @needs("volumes")
    def test_a_deletion_is_repeated_until_gone(self, site: Site) -> None:
        site.deleted()
        for call in (site.backend.describe_volume, site.backend.delete_volume):
            with pytest.raises(Gone):
                call(site.handle)
        assert list(site.backend.list_owned_volumes()) == []

    @needs("volumes", "machines")
    def test_an_attached_volume_is_not_deleted(self, site: Site) -> None:
        machine = site.machine()
        site.attached(machine)
        with pytest.raises(InUse):
            site.backend.delete_volume(site.handle)
        assert on(site.backend.describe_volume(site.handle), machine)
        site.detached(machine)
        site.deleted()

    # --- errors ------------------------------------------------------------------------------------------------------

    @needs("volumes")
    @pytest.mark.parametrize(
        "call",
        [
            lambda b, h: b.create_volume(volume_request(h.data["region"])),
            lambda b, h: b.register_volume(h.id, h.data["region"], ""),
            lambda b, h: b.describe_volume(h),
            lambda b, h: b.attach_volume(h, []),
            lambda b, h: b.detach_volume(h, []),
            lambda b, h: b.delete_volume(h),
            lambda b, h: list(b.list_owned_volumes()),
        ],
        ids=["create", "register", "describe", "attach", "detach", "delete", "list"],
    )
    def test_failures_about_volumes_are_told_in_our_words(
        self, broken: Backend, offers: Sequence[Offer], call: Callable[[Any, Handle], Any]
    ) -> None:
        with pytest.raises(BackendError) as raised:
            call(broken, Handle(kind="volume", id="vol-x", data={"region": offers[0].region}))
        assert not isinstance(raised.value, Gone)  # which is proof, and a provider that fails has proved nothing

"""What every backend must do, whoever its provider is. A backend's test is this class, told how to reach a provider.

A provider may be a real account, an emulator or a recording. A case that not every provider can pass needs a capability
of the facts (`needs`), and is asked of those whose facts grant it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, CreatesSeveral, GroupRequest, PlacementGroups
from chalicelib.domain.boot_script import user_data
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, Gone, InUse
from tests.backends.volume_conformance import VolumeConformance
from tests.harness.conformance import needs

INSTALL = "conformance"
ENOUGH = 50  # asks before something that should happen is called missing


def request_for(offer: Offer, name: str = "one", epoch: int = 0) -> CreateRequest:
    instance_id = derive("conformance", "instance", name)
    return CreateRequest(
        token=derive(instance_id, "create", epoch),
        name=f"dstack-{name}-{epoch}",
        tags=(
            ("dstack-install", INSTALL),
            ("dstack-project", "project"),
            ("dstack-instance", instance_id),
            ("dstack-epoch", str(epoch)),
        ),
        offer=offer,
        instance_id=instance_id,
        user_data=user_data("http://127.0.0.1:1", instance_id, "token", "0" * 64),
        disk_mib=offer.instance.resources.disk.size_mib,
        zones=offer.availability_zones,
    )


def group_request_for(offer: Offer, name: str = "one") -> GroupRequest:
    group_id = derive("conformance", "placement-group", name)
    return GroupRequest(
        token=derive(group_id, "create"),
        name=f"dstack-group-{name}",
        tags=(
            ("dstack-install", INSTALL),
            ("dstack-project", "project"),
            ("dstack-fleet", "fleet"),
            ("dstack-group", group_id),
        ),
        offer=offer,
        zones=offer.availability_zones,
    )


def inside(request: CreateRequest, group: Handle) -> CreateRequest:
    """The same machine in this group, where that is."""
    zone = group.data.get("zone")
    return replace(request, placement_group=group, zones=(zone,) if zone else request.zones)


class BackendConformance(VolumeConformance):
    """Fixtures to give: `backend`; `broken`, whose provider fails every call; `let_time_pass(seconds)`."""

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def broken(self) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def let_time_pass(self) -> Callable[[float], None]:
        raise NotImplementedError

    @pytest.fixture
    def facts(self, backend: Backend) -> BackendFacts:
        return backend.facts

    @pytest.fixture
    def request_one(self, backend: Backend) -> CreateRequest:
        return request_for(min(backend.offers(), key=lambda offer: offer.price))

    def _wait_gone(self, backend: Backend, handle: Handle, let_time_pass: Callable[[float], None]) -> None:
        for _ in range(ENOUGH):
            try:
                backend.terminate(handle)
            except Gone:
                return
            let_time_pass(5.0)
        pytest.fail(f"{handle} is still there")

    # --- facts and offers --------------------------------------------------------------------------------------------

    def test_facts_need_no_credentials(self, broken: Backend) -> None:
        facts = broken.facts
        assert isinstance(facts, BackendFacts)
        assert facts.name
        assert facts.create_timeout > 0 <= facts.visibility_lag
        assert facts.provisioning_timeout > facts.create_timeout

    def test_check_accepts_good_credentials(self, backend: Backend) -> None:
        backend.check()

    def test_offers_are_priced_and_its_own(self, backend: Backend) -> None:
        offers = backend.offers()
        assert offers
        for offer in offers:
            assert offer.backend == backend.facts.name
            assert offer.price >= 0
            assert offer.region
            assert offer.instance.resources.cpus > 0
            if backend.facts.simulated:
                assert offer.instance.resources.description == "simulated"

    def test_offers_are_told_apart_by_their_key(self, backend: Backend) -> None:
        found = [offer.key for offer in backend.offers()]
        assert len(found) == len(set(found))

    # --- create ------------------------------------------------------------------------------------------------------

    def test_created_machine_runs_in_time(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        handles = list(backend.create(request_one))
        assert handles
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        for _ in range(ENOUGH):
            machine = backend.describe(handles)
            if machine.state == "running":
                assert not machine.interrupted
                return
            let_time_pass(5.0)
        pytest.fail("the machine never ran")

    def test_handles_are_plain_data(self, backend: Backend, request_one: CreateRequest) -> None:
        for handle in backend.create(request_one):
            assert Handle.model_validate_json(handle.model_dump_json()) == handle

    def test_repeated_create_adopts(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        first = list(backend.create(request_one))
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        assert list(backend.create(request_one)) == first
        assert len(list(backend.list_owned(request_one.instance_id))) == len(first)

    def test_create_that_was_cut_short_goes_on(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        making = backend.create(request_one)
        first = next(making)
        if hasattr(making, "close"):
            making.close()
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        assert next(iter(backend.create(request_one))) == first

    def test_nothing_is_made_before_it_is_asked_for(self, backend: Backend, request_one: CreateRequest) -> None:
        backend.create(request_one)
        assert list(backend.list_owned()) == []

    def test_another_epoch_is_another_machine(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        first = set(map(str, backend.create(request_one)))
        again = replace(
            request_one,
            token=derive(request_one.token, "next"),
            name=request_one.name + "-next",
            tags=(*request_one.tags[:3], ("dstack-epoch", "1")),
        )
        assert not first & set(map(str, backend.create(again)))

    # --- several in one call -----------------------------------------------------------------------------------------

    @needs("batch")
    def test_several_are_created_as_each_would_be_alone(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        assert isinstance(backend, CreatesSeveral)
        requests = [request_for(request_one.offer, name) for name in ("one", "two", "three")][: backend.facts.batch]
        made: dict[str, list[Handle]] = {}
        for each in backend.create_several(requests):
            assert each.handle is not None and each.error is None
            made.setdefault(each.token, []).append(each.handle)
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        assert made == {request.token: list(backend.create(request)) for request in requests}
        assert len(list(backend.list_owned())) == sum(map(len, made.values()))

    @needs("batch")
    def test_an_answer_that_was_lost_is_made_good_one_by_one(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        assert isinstance(backend, CreatesSeveral)
        requests = [request_for(request_one.offer, name) for name in ("one", "two")]
        first = next(backend.create_several(requests))
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        made = {request.token: list(backend.create(request)) for request in requests}
        assert first.handle in made[first.token]
        assert len(list(backend.list_owned())) == sum(map(len, made.values()))

    @needs("batch")
    def test_nothing_of_several_is_made_before_it_is_asked_for(
        self, backend: Backend, request_one: CreateRequest
    ) -> None:
        assert isinstance(backend, CreatesSeveral)
        backend.create_several([request_one])
        assert list(backend.list_owned()) == []

    @needs("batch")
    def test_a_call_for_several_fails_in_our_words(self, broken: Backend, request_one: CreateRequest) -> None:
        assert isinstance(broken, CreatesSeveral)
        with pytest.raises(BackendError):
            list(broken.create_several([request_one]))

    # --- placement groups --------------------------------------------------------------------------------------------

    def _wait_group_gone(self, backend: PlacementGroups, group: Handle, let_time_pass: Callable[[float], None]) -> None:
        for _ in range(ENOUGH):
            try:
                backend.delete_group(group)
            except Gone:
                return
            let_time_pass(5.0)
        pytest.fail(f"{group} is still there")

    @needs("placement_groups")
    def test_a_group_that_exists_is_adopted(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        assert isinstance(backend, PlacementGroups)
        request = group_request_for(request_one.offer)
        group = backend.create_group(request)
        assert backend.create_group(request) == group == Handle.model_validate_json(group.model_dump_json())
        other = backend.create_group(group_request_for(request_one.offer, "two"))
        assert other.id != group.id
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        owned = {each.handle.id: each for each in backend.list_owned_groups()}
        assert sorted(owned) == sorted([group.id, other.id])
        tags = dict(request.tags)
        found = owned[group.id]
        assert (found.install, found.project_id) == (INSTALL, tags["dstack-project"])
        assert (found.fleet_id, found.group_id) == (tags["dstack-fleet"], tags["dstack-group"])
        assert list(backend.list_owned()) == []

    @needs("placement_groups")
    def test_a_group_goes_once_its_machines_are_gone(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        assert isinstance(backend, PlacementGroups)
        group = backend.create_group(group_request_for(request_one.offer))
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        handles = list(backend.create(inside(request_one, group)))
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        for handle in handles:
            assert not group.data.get("zone") or handle.data["zone"] == group.data["zone"]
        assert group not in [each.handle for each in backend.list_owned()]
        with pytest.raises(InUse):
            backend.delete_group(group)
        for handle in reversed(handles):
            self._wait_gone(backend, handle, let_time_pass)
        self._wait_group_gone(backend, group, let_time_pass)
        with pytest.raises(Gone):
            backend.delete_group(group)
        assert list(backend.list_owned_groups()) == []

    @needs("placement_groups")
    def test_a_group_without_machines_can_be_deleted_at_once(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        assert isinstance(backend, PlacementGroups)
        self._wait_group_gone(backend, backend.create_group(group_request_for(request_one.offer)), let_time_pass)

    @needs("placement_groups")
    def test_a_machine_can_only_join_a_group_that_exists(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        assert isinstance(backend, PlacementGroups)
        group = backend.create_group(group_request_for(request_one.offer))
        self._wait_group_gone(backend, group, let_time_pass)
        with pytest.raises(Gone):
            list(backend.create(inside(request_one, group)))
        with pytest.raises(Gone):
            backend.delete_group(group.with_(id="no-such-group"))
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        assert list(backend.list_owned()) == []

    @needs("placement_groups")
    @pytest.mark.parametrize(
        "call",
        [
            lambda b, r: b.create_group(group_request_for(r.offer)),
            lambda b, r: b.delete_group(Handle(kind="group", id="x")),
            lambda b, r: list(b.list_owned_groups()),
        ],
        ids=["create_group", "delete_group", "list_owned_groups"],
    )
    def test_failures_of_groups_are_told_in_our_words(
        self, broken: Backend, request_one: CreateRequest, call: Callable[[Backend, CreateRequest], Any]
    ) -> None:
        with pytest.raises(BackendError) as told:
            call(broken, request_one)
        assert not isinstance(told.value, Gone)

    # --- list_owned --------------------------------------------------------------------------------------------------

    def test_every_resource_bears_the_owner_tag(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        handles = list(backend.create(request_one))
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        owned = list(backend.list_owned())
        assert sorted(map(str, (each.handle for each in owned))) == sorted(map(str, handles))
        for each in owned:
            assert (each.install, each.instance_id, each.epoch) == (INSTALL, request_one.instance_id, 0)

    def test_owned_can_be_asked_of_one_instance(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        list(backend.create(request_one))
        other = request_for(request_one.offer, "two")
        made = list(backend.create(other))
        let_time_pass(backend.facts.visibility_lag / 1_000_000)
        owned = [each.handle for each in backend.list_owned(other.instance_id)]
        assert sorted(map(str, owned)) == sorted(map(str, made))

    # --- terminate ---------------------------------------------------------------------------------------------------

    def test_terminate_is_repeated_until_gone(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        handles = list(backend.create(request_one))
        for handle in reversed(handles):
            self._wait_gone(backend, handle, let_time_pass)
        for handle in handles:
            with pytest.raises(Gone):
                backend.terminate(handle)
        with pytest.raises(Gone):
            backend.describe(handles)
        assert list(backend.list_owned()) == []

    def test_every_single_handle_can_be_ended(
        self, backend: Backend, request_one: CreateRequest, let_time_pass: Callable[[float], None]
    ) -> None:
        making = backend.create(request_one)
        first = next(making)  # whatever was made so far is all there is
        self._wait_gone(backend, first, let_time_pass)

    def test_unknown_handle_is_gone(self, backend: Backend, request_one: CreateRequest) -> None:
        handle = next(iter(backend.create(request_one)))
        with pytest.raises(Gone):
            backend.terminate(handle.with_(id="no-such-thing"))

    # --- errors ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "call",
        [
            lambda b, r: b.check(),
            lambda b, r: b.offers(),
            lambda b, r: list(b.create(r)),
            lambda b, r: b.describe([Handle(kind="vm", id="x")]),
            lambda b, r: b.terminate(Handle(kind="vm", id="x")),
            lambda b, r: list(b.list_owned()),
        ],
        ids=["check", "offers", "create", "describe", "terminate", "list_owned"],
    )
    def test_failures_are_told_in_our_words(
        self, broken: Backend, request_one: CreateRequest, call: Callable[[Backend, CreateRequest], Any]
    ) -> None:
        with pytest.raises(BackendError):
            call(broken, request_one)

    def test_close_may_be_repeated(self, backend: Backend) -> None:
        backend.close()
        backend.close()

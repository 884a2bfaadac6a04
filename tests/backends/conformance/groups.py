"""Placement groups: `BackendConformance` has these cases, for those whose facts grant them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, PlacementGroups
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import same_install
from chalicelib.errors import BackendError, Gone, InUse
from tests.backends.conformance.requests import FLEET, INSTALL, PROJECT, group_request_for, inside
from tests.backends.conformance.suite import ENOUGH, Suite, end_all
from tests.harness.conformance import needs


class PlacementGroupConformance(Suite):
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
        found = owned[group.id]
        assert same_install(found.install, INSTALL) and found.fleet_id == FLEET
        assert found.project_id == (PROJECT if backend.facts.tags else ""), "a name has no room for both"
        assert found.group_id == dict(request.tags)["dstack-group"]
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
        end_all(backend, let_time_pass, handles)
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
        with pytest.raises(BackendError) as raised:
            call(broken, request_one)
        assert not isinstance(raised.value, Gone)

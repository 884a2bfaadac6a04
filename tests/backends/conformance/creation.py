"""Creating a machine: what is yielded is never lost, and what is asked for twice is there once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, Machine
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.domain.owner import LONGEST
from chalicelib.errors import BackendError, Unfit
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for, unsold
from tests.backends.conformance.suite import Suite, cut_short
from tests.harness.conformance import needs

GIB = 1024
LONGEST_TAGS = tuple((f"{n:02}-{'k' * 60}", "v" * 255) for n in range(25))


class Creation(Suite):
    def test_created_machine_runs_in_time(
        self, backend: Backend, request_one: CreateRequest, run: Callable[[Sequence[Handle]], Machine]
    ) -> None:
        handles = list(backend.create(request_one))
        assert handles
        assert not run(handles).interrupted

    def test_handles_are_plain_data(self, backend: Backend, request_one: CreateRequest) -> None:
        for handle in backend.create(request_one):
            assert Handle.model_validate_json(handle.model_dump_json()) == handle

    def test_nothing_is_made_before_it_is_asked_for(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        backend.create(request_one)
        assert provider.existing() == set()

    def test_all_that_is_made_is_yielded(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        assert {handle.id for handle in backend.create(request_one)} == provider.existing()

    # --- twice -------------------------------------------------------------------------------------------------------

    def test_repeated_create_adopts(
        self, backend: Backend, request_one: CreateRequest, pass_lag: Callable[[], None]
    ) -> None:
        first = list(backend.create(request_one))
        pass_lag()
        assert list(backend.create(request_one)) == first
        assert len(list(backend.list_owned(request_one.instance_id))) == len(first)

    @needs("idempotent_create")
    def test_the_token_finds_at_once_what_the_first_call_made(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        provider.invisible_for(60.0)
        first = list(backend.create(request_one))
        assert list(backend.create(request_one)) == first
        assert provider.existing() == {handle.id for handle in first}

    @needs("idempotent_create")
    def test_an_answer_lost_in_another_zone_is_no_second_machine(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        """Though the first zone has room again before the machine shows."""
        first = next(iter(request_one.zones or ()), "")
        provider.zone_is_full(request_one.offer, first)
        provider.invisible_for(600.0)
        provider.fail("create", "Transient", when="after")
        trying = ""
        with pytest.raises(BackendError):
            for handle in backend.create(request_one):
                trying = handle.data["zone"] if handle.kind == TRYING else trying
        provider.zone_is_full(request_one.offer, first, full=False)
        made = list(backend.create(replace(request_one, trying=trying)))
        assert provider.existing() == {handle.id for handle in made}

    @needs("idempotent_create")
    def test_two_calls_at_once_make_one_machine(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        one, other = backend.create(request_one), backend.create(request_one)
        taken = [next(one), next(other)]
        assert taken[0] == taken[1]
        assert list(one) == list(other)
        assert len(provider.existing()) == len(list(backend.create(request_one)))

    @pytest.mark.parametrize("after", [1, 2, 3])
    def test_create_that_was_cut_short_goes_on(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: Callable[[], None], after: int
    ) -> None:
        first = cut_short(backend, request_one, after)
        pass_lag()
        again = list(backend.create(request_one))
        assert again[: len(first)] == first
        assert provider.existing() == {handle.id for handle in again}

    @pytest.mark.parametrize("after", [1, 2, 3])
    def test_what_was_yielded_is_all_that_must_be_ended(
        self,
        backend: Backend,
        request_one: CreateRequest,
        provider: Provider,
        end: Callable[[Sequence[Handle]], None],
        after: int,
    ) -> None:
        end(cut_short(backend, request_one, after))
        assert provider.existing() == set()
        assert list(backend.list_owned()) == []

    def test_an_answer_that_is_lost_is_made_good(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: Callable[[], None]
    ) -> None:
        provider.fail("create", "Transient", when="after")
        with pytest.raises(BackendError):
            list(backend.create(request_one))
        pass_lag()
        assert {handle.id for handle in backend.create(request_one)} == provider.existing()

    def test_another_epoch_is_another_machine(self, backend: Backend, request_one: CreateRequest) -> None:
        first = {handle.id for handle in backend.create(request_one)}
        again = request_for(request_one.offer, epoch=1)
        assert again.instance_id == request_one.instance_id
        assert first.isdisjoint(handle.id for handle in backend.create(again))

    def test_machines_asked_for_at_the_same_time_are_all_made(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: Callable[[], None]
    ) -> None:
        """Beside one that is there."""
        there = [handle.id for handle in backend.create(request_one)]
        pass_lag()
        requests = [request_for(request_one.offer, f"at-once-{n}") for n in range(4)]
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda request: list(backend.create(request)), requests))
        ids = [*there, *(handle.id for handles in made for handle in handles)]
        assert len(ids) == len(set(ids)) and set(ids) == provider.existing()

    # --- as requested ------------------------------------------------------------------------------------------------

    def test_the_boot_script_arrives_byte_for_byte(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        if request_one.container is not None:
            assert provider.container(list(backend.create(request_one))) == request_one.container
            return
        script = request_one.user_data + "# ü € 'quoted' \"twice\" $HOME `x` \\n & <tag> %0A +\n\t\n"
        handles = list(backend.create(replace(request_one, user_data=script)))
        assert provider.user_data(handles) == script

    def test_the_disk_is_as_large_as_requested(
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        """Or refused, where each type has a disk of its own."""
        usual = request_one.offer.instance.resources.disk.size_mib
        wanted = max(300 * GIB, usual) + 1
        try:
            handles = list(backend.create(replace(request_one, disk_mib=wanted)))
        except Unfit:
            assert not request_one.offer.elastic and provider.existing() == set()
            assert provider.disk_gib(list(backend.create(request_one))) * GIB == usual
        else:
            assert wanted <= provider.disk_gib(handles) * GIB <= wanted + 50 * GIB

    @needs("tags")
    def test_tags_are_as_requested_at_their_limits(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: Callable[[], None]
    ) -> None:
        """Those of users, too: 25 of them, and as long as the provider takes them."""
        users = getattr(provider, "longest_tags", LONGEST_TAGS)
        request = replace(request_one, tags=(*request_one.tags, *users))
        for handle in backend.create(request):
            tags = provider.tags(handle)
            assert {name: tags.get(name) for name, _ in request.tags} == dict(request.tags)
        pass_lag()
        assert {one.instance_id for one in backend.list_owned()} == {request.instance_id}

    def test_the_longest_name_is_taken(self, backend: Backend, request_one: CreateRequest, provider: Provider) -> None:
        assert len(request_one.name) == LONGEST
        assert list(backend.create(request_one))

    def test_a_machine_is_in_a_zone_that_was_asked_for(self, backend: Backend, request_one: CreateRequest) -> None:
        for zone in request_one.zones or ():
            request = replace(request_for(request_one.offer, zone), zones=(zone,))
            assert {handle.data["zone"] for handle in backend.create(request) if handle.kind == "vm"} == {zone}

    def test_what_isnt_sold_is_refused(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, let_time_pass: LetPass
    ) -> None:
        with pytest.raises(BackendError):
            list(backend.create(request_for(unsold(request_one.offer, "no.such-type"))))
        assert provider.existing() == set()

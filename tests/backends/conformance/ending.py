"""Ending machines: any handle, in any state, any number of times; only Gone is proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, Machine
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.errors import Gone
from tests.backends.conformance.provider import Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite, is_gone
from tests.harness.conformance import needs

End = Callable[[Sequence[Handle]], None]
Run = Callable[[Sequence[Handle]], Machine]


class Ending(Suite):
    def test_terminate_is_repeated_until_gone(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, end: End
    ) -> None:
        handles = list(backend.create(request_one))
        end(handles)
        for handle in handles:
            with pytest.raises(Gone):
                backend.terminate(handle)
        assert provider.existing() == set()
        assert list(backend.list_owned()) == []

    def test_a_running_machine_ends(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, run: Run, end: End
    ) -> None:
        handles = list(backend.create(request_one))
        run(handles)
        end(handles)
        assert provider.existing() == set()

    def test_an_end_is_a_request_and_not_proof(
        self, backend: Backend, request_one: CreateRequest, run: Run, end: End
    ) -> None:
        """Nothing that ends by and by is called gone at once."""
        handles = list(backend.create(request_one))
        run(handles)
        assert not is_gone(backend, handles[-1])
        assert not is_gone(backend, handles[-1])
        end(handles)

    def test_every_single_handle_can_be_ended(self, backend: Backend, request_one: CreateRequest, end: End) -> None:
        end([next(backend.create(request_one))])  # whatever was made so far is all there is

    def test_the_order_of_ending_doesnt_matter(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, run: Run, end: End
    ) -> None:
        handles = list(backend.create(request_one))
        run(handles)
        end(handles[::-1])
        assert provider.existing() == set()

    @needs("visibility_lag")
    def test_what_doesnt_show_yet_isnt_called_gone(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, end: End
    ) -> None:
        """Or it would run for ever: an error is no proof, and asking again ends it."""
        provider.invisible_for(backend.facts.visibility_lag / SECOND)
        handles = list(backend.create(request_one))
        assert not any(is_gone(backend, handle) for handle in handles)
        end(handles)
        assert provider.existing() == set()

    def test_unknown_handle_is_gone(
        self, backend: Backend, request_one: CreateRequest, pass_lag: Callable[[], None]
    ) -> None:
        handle = next(iter(backend.create(request_one)))
        pass_lag()
        with pytest.raises(Gone):
            backend.terminate(handle.with_(id="no-such-thing"))

    def test_what_was_lost_is_gone(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, run: Run, end: End
    ) -> None:
        handles = list(backend.create(request_one))
        run(handles)
        provider.lost(handles)
        end(handles)
        assert provider.existing() == set()

    def test_nothing_else_ends_with_it(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, run: Run, end: End
    ) -> None:
        one, other = (list(backend.create(request_for(request_one.offer, name))) for name in ("one", "other"))
        others = provider.strangers(backend, request_one.offer)
        run(one), run(other)
        end(one)
        assert provider.existing() == {handle.id for handle in other} | others
        assert backend.describe(other).state == "running"

    def test_what_ended_is_created_anew_only_by_another_epoch(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, run: Run, end: End
    ) -> None:
        first = list(backend.create(request_one))
        run(first)
        end(first)
        again = list(backend.create(request_for(request_one.offer, epoch=1)))
        assert run(again).state == "running"
        assert {handle.id for handle in first}.isdisjoint(provider.existing())

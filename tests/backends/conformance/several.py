"""Several machines in one call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, CreatesSeveral
from chalicelib.domain.instances import Handle
from chalicelib.errors import BackendError
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite
from tests.harness.conformance import needs


class Several(Suite):
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

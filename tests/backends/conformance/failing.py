"""Failures: each in our words, with what the engine needs to know, and with nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.instances import TRYING, Handle
from chalicelib.errors import (
    BackendError,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    MissingPermission,
    QuotaExceeded,
    Throttled,
    Transient,
)
from tests.backends.conformance.provider import Call, Fails, LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite, offers_of, refusal_of

CALLS: dict[Call, Callable[[Backend, CreateRequest, list[Handle]], Any]] = {
    "check": lambda b, r, h: b.check(),
    "offers": lambda b, r, h: offers_of(b),
    "create": lambda b, r, h: list(b.create(request_for(r.offer, "another"))),
    "describe": lambda b, r, h: b.describe(h),
    "terminate": lambda b, r, h: b.terminate(h[-1]),
    "list": lambda b, r, h: list(b.list_owned()),
}
KINDS: dict[Fails, type[BackendError]] = {
    "InvalidCredentials": InvalidCredentials,
    "MissingPermission": MissingPermission,
    "Throttled": Throttled,
    "Transient": Transient,
}


class Failing(Suite):
    @pytest.mark.parametrize("call", CALLS)
    def test_failures_are_told_in_our_words(self, broken: Backend, request_one: CreateRequest, call: Call) -> None:
        made = [Handle(kind="vm", id="i-0123456789abcdef0", data={"region": request_one.offer.region})]
        with pytest.raises(BackendError) as raised:
            CALLS[call](broken, request_one, made)
        assert not isinstance(raised.value, Gone)  # which is proof, and a provider that fails has proved nothing

    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("error", KINDS)
    def test_each_failure_is_told_as_what_it_is(
        self,
        backend: Backend,
        request_one: CreateRequest,
        provider: Provider,
        pass_lag: Callable[[], None],
        let_time_pass: LetPass,
        call: Call,
        error: Fails,
    ) -> None:
        """And passes: the same call works afterwards."""
        made = list(backend.create(request_one))
        pass_lag()
        provider.fail(call, error)
        with pytest.raises(KINDS[error]) as raised:
            CALLS[call](backend, request_one, made)
        if isinstance(raised.value, Throttled):
            assert 0 < raised.value.retry_after <= 3600
            let_time_pass(raised.value.retry_after)
        CALLS[call](backend, request_one, made)

    def test_no_machine_left_is_a_lack_of_capacity(
        self,
        backend: Backend,
        request_one: CreateRequest,
        provider: Provider,
        let_time_pass: LetPass,
        end: Callable[[Sequence[Handle]], None],
    ) -> None:
        provider.none_left(request_one.offer)
        text, kind, made = refusal_of(backend, request_one, let_time_pass)
        assert kind is InsufficientCapacity and request_one.offer.instance.name in text
        resources = [handle for handle in made if handle.kind != TRYING]
        assert provider.existing() <= {handle.id for handle in resources}
        end(resources)
        assert provider.existing() == set()

    def test_a_quota_is_a_quota(self, backend: Backend, request_one: CreateRequest, provider: Provider) -> None:
        provider.quota(request_one.offer, 1)
        made = {handle.id for handle in backend.create(request_one)}
        with pytest.raises(QuotaExceeded):
            list(backend.create(request_for(request_one.offer, "two")))
        assert provider.existing() == made

    def test_a_quota_that_is_used_up_hides_nothing_that_exists(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: Callable[[], None]
    ) -> None:
        made = list(backend.create(request_one))
        pass_lag()
        provider.quota(request_one.offer, 0)
        assert list(backend.create(request_one)) == made

    def test_a_creation_that_fails_leaves_only_what_it_yielded(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, end: Callable[[Sequence[Handle]], None]
    ) -> None:
        made: list[Handle] = []
        making = backend.create(request_one)
        provider.fail("create", "Transient")
        with pytest.raises(Transient):
            while (handle := next(making, None)) is not None:
                made.append(handle)
        resources = [handle for handle in made if handle.kind != TRYING]
        assert provider.existing() == {handle.id for handle in resources}
        end(resources)
        assert provider.existing() == set()

    def test_a_failure_is_never_taken_for_an_end(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: Callable[[], None]
    ) -> None:
        handles = list(backend.create(request_one))
        pass_lag()
        provider.fail("terminate", "Transient", times=len(handles))
        for handle in reversed(handles):
            with pytest.raises(Transient):
                backend.terminate(handle)
        assert provider.existing() == {handle.id for handle in handles}

"""Machines of gateways: `BackendConformance` has these cases, for those whose facts grant them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, Machine
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone, Unfit
from tests.backends.conformance.provider import GatewayProvider, LetPass, Provider
from tests.backends.conformance.requests import created, request_for
from tests.backends.conformance.suite import ENOUGH, Suite, is_gone
from tests.harness.conformance import needs


class GatewayConformance(Suite):
    @needs("gateways")
    def test_a_gateways_machine_opens_its_ports_and_no_other(
        self,
        backend: Backend,
        provider: Provider,
        request_one: CreateRequest,
        run: Callable[[Sequence[Handle]], Machine],
        end: Callable[[Sequence[Handle]], None],
    ) -> None:
        request = replace(request_one, open_ports=(80, 443))
        made = list(created(backend, request))
        assert provider.open_ports(made) == {80, 443}
        assert run(made).hostname
        assert list(created(backend, request)) == made, "a repeated purchase is the same"
        another = list(created(backend, replace(request_for(request.offer, "two"), open_ports=(80, 443))))
        assert provider.open_ports(another) == {80, 443}
        end([*made, *another])
        assert provider.existing() == set()

    @needs("gateways")
    def test_no_other_machine_opens_any(self, backend: Backend, provider: Provider, request_one: CreateRequest) -> None:
        list(created(backend, replace(request_for(request_one.offer, "door"), open_ports=(80, 443))))
        assert provider.open_ports(list(created(backend, request_one))) == set()

    @needs("gateways")
    def test_one_without_https_opens_one_port(
        self, backend: Backend, provider: Provider, request_one: CreateRequest
    ) -> None:
        list(created(backend, replace(request_for(request_one.offer, "door"), open_ports=(80, 443))))
        assert provider.open_ports(list(created(backend, replace(request_one, open_ports=(80,))))) == {80}

    @needs("gateway_containers")
    def test_a_gateways_container_is_pending_until_it_has_its_address(
        self,
        backend: Backend,
        provider: Provider,
        request_one: CreateRequest,
        let_time_pass: LetPass,
        run: Callable[[Sequence[Handle]], Machine],
    ) -> None:
        cast(GatewayProvider, provider).addresses(takes=100.0)
        made = list(created(backend, replace(request_one, open_ports=(80, 443))))
        for _ in range(3):
            let_time_pass(30.0)
            machine = backend.describe(made)
            assert (machine.state, machine.hostname) == ("pending", "")
        found = run(made)
        assert found.hostname and found.hostname != found.internal_ip

    @needs("gateway_containers")
    @pytest.mark.parametrize("why", ["", "the account's quota of addresses is used up"])
    def test_an_address_that_never_comes_is_a_reason(
        self,
        backend: Backend,
        provider: Provider,
        request_one: CreateRequest,
        let_time_pass: LetPass,
        end: Callable[[Sequence[Handle]], None],
        why: str,
    ) -> None:
        cast(GatewayProvider, provider).addresses(fail=why or True)
        made = list(created(backend, replace(request_one, open_ports=(80,))))
        with pytest.raises(Gone, match=why or "no address") as gone:
            for _ in range(ENOUGH):
                let_time_pass(15.0)
                backend.describe(made)
        assert gone.value.refused is Unfit
        end(made)
        assert provider.existing() == set()

    @needs("gateway_containers")
    def test_a_gateways_container_that_is_cut_short_is_completed_once(
        self,
        backend: Backend,
        provider: Provider,
        request_one: CreateRequest,
        run: Callable[[Sequence[Handle]], Machine],
    ) -> None:
        for cut, name in enumerate(("first", "second", "third")):
            request = replace(request_for(request_one.offer, name), open_ports=(80, 443))
            making = created(backend, request)
            before = [next(making) for _ in range(cut)]
            del making
            existing = provider.existing()
            made = list(created(backend, request))
            assert made[:cut] == before and existing <= provider.existing()
            assert provider.open_ports(made) == {80, 443} and run(made).hostname
            assert list(created(backend, request)) == made
            owned = [each.handle for each in backend.list_owned(request.instance_id)]
            assert sorted(owned, key=str) == sorted(made, key=str)

    @needs("gateway_containers")
    def test_an_address_is_free_again_before_its_gateway_is_gone(
        self, backend: Backend, provider: Provider, request_one: CreateRequest, let_time_pass: LetPass
    ) -> None:
        cast(GatewayProvider, provider).addresses(released_after=60.0)
        made = list(created(backend, replace(request_one, open_ports=(80,))))
        let_time_pass(10.0)
        assert not all([is_gone(backend, handle) for handle in reversed(made)])
        let_time_pass(30.0)
        assert not all([is_gone(backend, handle) for handle in reversed(made)]), "its address isn't free yet"
        assert provider.existing()
        for _ in range(ENOUGH):
            let_time_pass(10.0)
            if all([is_gone(backend, handle) for handle in reversed(made)]):
                break
        assert provider.existing() == set()

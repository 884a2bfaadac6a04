"""Machines of gateways: `BackendConformance` has these cases, for those whose facts grant them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from chalicelib.backends.spi import Backend, CreateRequest, Machine
from chalicelib.domain.instances import Handle
from tests.backends.conformance.provider import Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite
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
        made = list(backend.create(request))
        assert provider.open_ports(made) == {80, 443}
        assert run(made).hostname
        assert list(backend.create(request)) == made, "a repeated purchase is the same"
        another = list(backend.create(replace(request_for(request.offer, "two"), open_ports=(80, 443))))
        assert provider.open_ports(another) == {80, 443}
        end([*made, *another])
        assert provider.existing() == set()

    @needs("gateways")
    def test_no_other_machine_opens_any(self, backend: Backend, provider: Provider, request_one: CreateRequest) -> None:
        list(backend.create(replace(request_for(request_one.offer, "door"), open_ports=(80, 443))))
        assert provider.open_ports(list(backend.create(request_one))) == set()

    @needs("gateways")
    def test_one_without_https_opens_one_port(
        self, backend: Backend, provider: Provider, request_one: CreateRequest
    ) -> None:
        list(backend.create(replace(request_for(request_one.offer, "door"), open_ports=(80, 443))))
        assert provider.open_ports(list(backend.create(replace(request_one, open_ports=(80,))))) == {80}

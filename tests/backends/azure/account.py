"""A subscription and a backend on it, for tests of what becomes of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.backends.azure.backend import AzureBackend
from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.kit.rest import RestAnswer, RestCall
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, Gone
from tests.backends.azure.fake import Azure
from tests.backends.azure.provider import AzureProvider, config
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import end_all, is_gone
from tests.backends.fakes.books import Resource
from tests.backends.fakes.transport import sender

SMALL, GPU = "Standard_D2s_v5", "Standard_NC4as_T4_v3"


class Account:
    def __init__(self, backend: Any = AzureBackend, client: Any = AzureClient, **settings: Any) -> None:
        """`backend` and `client`: their classes."""
        self.clock = Clock()
        self.fake = Azure(self.clock.now)
        self.provider = AzureProvider(self.fake)
        found = config(**settings)
        self.takes = 0.0  # seconds: how long each call does
        whole = sender(self.fake)

        def send(call: RestCall, deadline: float) -> RestAnswer:
            self.clock.passes(self.takes)
            return whole(call, deadline)

        self.client = client(found, self.clock.now, send=send, env={})
        self.backend: AzureBackend = backend(found, self.client, self.clock.now)

    def offer(self, size: str = SMALL, *, spot: bool = False, region: str = "westeurope") -> Offer:
        return next(
            each
            for each in self.backend.offers()
            if (each.instance.name, each.region, each.instance.resources.spot) == (size, region, spot)
        )

    def request(self, name: str = "one", size: str = SMALL, *, spot: bool = False) -> CreateRequest:
        return request_for(self.offer(size, spot=spot), name)

    def offered_in(self, reservation: str) -> list[Offer]:
        return [each for each in self.backend.offers() if each.reservation == reservation]

    def bought_in(self, reservation: str, name: str = "one") -> Resource:
        (offer,) = self.offered_in(reservation)
        return self.provider.machine(
            list(self.backend.create(replace(request_for(offer, name), reservation=reservation)))
        )

    def made(self, name: str = "one", size: str = SMALL, *, spot: bool = False) -> list[Handle]:
        return list(self.backend.create(self.request(name, size, spot=spot)))

    def running(self, name: str = "one", size: str = SMALL, *, spot: bool = False) -> list[Handle]:
        handles = self.made(name, size, spot=spot)
        self.clock.passes(90)
        assert self.backend.describe(handles).state == "running"
        return handles

    def end(self, handles: Sequence[Handle]) -> None:
        end_all(self.backend, self.clock.passes, handles)

    def refusal(self, handles: Sequence[Handle]) -> tuple[str, type[BackendError] | None]:
        """Why there is no such machine after all."""
        self.clock.passes(90)
        with pytest.raises(Gone) as gone:
            self.backend.describe(handles)
        return str(gone.value), gone.value.refused

    def left(self) -> set[str]:
        """Everything that is billed, or that nobody may leave behind, without what goes with a machine."""
        return self.provider.existing()

    def sweep(self) -> None:
        """By what is listed alone, as if nobody knew any handle."""
        for _ in range(20):
            self.clock.passes(60)
            for each in list(self.backend.list_owned()):
                is_gone(self.backend, each.handle)

    def sent(self, operation: str) -> int:
        return len(self.fake.calls_of(operation))

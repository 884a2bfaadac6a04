"""Reservations: `BackendConformance` has these cases, for those whose facts grant them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Availability, Offer
from chalicelib.errors import BackendError, InsufficientCapacity, Unfit
from tests.backends.conformance.provider import Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite, offers_of
from tests.harness.conformance import needs


class Reserving(Suite):
    @needs("reservations")
    def test_a_reservation_is_an_offer_of_its_own(
        self, backend: Backend, provider: Provider, request_one: CreateRequest
    ) -> None:
        usual = request_one.offer
        reserved = provider.reserve(usual, 2)
        offer = _offered(backend, reserved, usual)
        assert offer.instance == usual.instance and offer.region == usual.region
        if usual.availability_zones:
            assert offer.availability_zones is not None and len(offer.availability_zones) == 1
            assert set(offer.availability_zones) < set(usual.availability_zones)
        assert offer.price == pytest.approx(provider.price(usual), rel=1e-3)
        assert offer.availability is Availability.available
        assert offer.key != usual.key and usual.key in {each.key for each in offers_of(backend)}

    @needs("reservations")
    @pytest.mark.parametrize("state", ["scheduled", "expired", "cancelled"])
    def test_a_reservation_that_is_not_there_now_cannot_be_bought_from(
        self, backend: Backend, provider: Provider, request_one: CreateRequest, state: str
    ) -> None:
        reserved = provider.reserve(request_one.offer, 1, state)
        offered = _offers_in(backend, reserved, request_one.offer)
        assert not any(offer.availability.usable for offer in offered)
        assert len(offered) == (state == "scheduled"), "one that comes is shown"
        with pytest.raises(BackendError, match=reserved):
            list(backend.create(replace(request_one, reservation=reserved)))
        assert provider.existing() == set()

    @needs("reservations")
    def test_a_machine_is_launched_into_its_reservation_alone(
        self, backend: Backend, provider: Provider, request_one: CreateRequest, end: Callable[[list[Handle]], None]
    ) -> None:
        reserved = provider.reserve(request_one.offer, 1)
        list(backend.create(request_one))
        assert provider.in_reservation(reserved) == 0, "it is kept for who names it"
        request = replace(_request(backend, reserved, request_one.offer), reservation=reserved)
        made = list(backend.create(request))
        assert provider.in_reservation(reserved) == 1
        assert list(backend.create(request)) == made and provider.in_reservation(reserved) == 1
        end(made)
        assert provider.in_reservation(reserved) == 0

    @needs("reservations")
    def test_a_full_reservation_has_no_capacity(
        self, backend: Backend, provider: Provider, request_one: CreateRequest
    ) -> None:
        reserved = provider.reserve(request_one.offer, 1)
        list(backend.create(replace(_request(backend, reserved, request_one.offer), reservation=reserved)))
        before = provider.existing()
        assert _offered(backend, reserved, request_one.offer).availability is Availability.unknown, (
            "there may be room again"
        )
        with pytest.raises(InsufficientCapacity):
            list(backend.create(replace(_request(backend, reserved, request_one.offer, "two"), reservation=reserved)))
        assert provider.existing() == before

    @needs("reservations")
    def test_a_reservation_of_something_else_is_refused(
        self, backend: Backend, provider: Provider, request_one: CreateRequest
    ) -> None:
        usual = request_one.offer
        other = next(
            offer
            for offer in offers_of(backend)
            if offer.instance.resources.gpus[:1] != usual.instance.resources.gpus[:1]
            and offer.region == usual.region
            and not offer.instance.resources.spot
        )
        reserved = provider.reserve(other, 1)
        with pytest.raises(Unfit, match=reserved):
            list(backend.create(replace(request_one, reservation=reserved)))
        assert provider.existing() == set() and provider.in_reservation(reserved) == 0


def _offers_in(backend: Backend, reserved: str, usual: Offer) -> list[Offer]:
    """Of one type: a reservation may be for several."""
    found = (offer for offer in offers_of(backend) if offer.reservation == reserved)
    return [offer for offer in found if offer.instance.name == usual.instance.name]


def _offered(backend: Backend, reserved: str, usual: Offer) -> Offer:
    (found,) = _offers_in(backend, reserved, usual)
    return found


def _request(backend: Backend, reserved: str, usual: Offer, name: str = "reserved") -> CreateRequest:
    return request_for(_offered(backend, reserved, usual), name)

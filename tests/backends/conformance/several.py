"""Several machines in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, CreatesSeveral, DescribesSeveral, Machine
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, Gone
from tests.backends.conformance.provider import Provider
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
        self, backend: Backend, request_one: CreateRequest, provider: Provider
    ) -> None:
        assert isinstance(backend, CreatesSeveral)
        backend.create_several([request_one])
        assert provider.existing() == set()

    @needs("describes", "spot", "spot_notice")
    def test_several_are_described_as_each_would_be_alone(
        self,
        backend: Backend,
        offers: Sequence[Offer],
        provider: Provider,
        run: Callable[[Sequence[Handle]], Machine],
        end: Callable[[Sequence[Handle]], None],
    ) -> None:
        """In the order asked for, though one is gone, one unknown, one about to go, and one elsewhere."""
        assert isinstance(backend, DescribesSeveral)
        bought = [_cheapest(offers, region, spot=True) for region in sorted({offer.region for offer in offers})[:2]]
        requests = [request_for(bought[-1], "elsewhere"), *(request_for(bought[0], str(n)) for n in range(3))]
        elsewhere, stays, goes, ends = made = [list(backend.create(request)) for request in requests]
        for each in made:
            run(each)
        provider.reclaim(goes)
        end(ends)
        unknown = [each.with_(id=f"i-{'0' * 17}") for each in stays]
        several = [goes, unknown, stays, ends, elsewhere]
        found = backend.describe_several(several)
        assert list(map(_comparable, found)) == [_comparable(_alone(backend, handles)) for handles in several]
        states = [each.state if isinstance(each, Machine) else type(each) for each in found]
        assert [state == "running" for state in states] == [True, False, True, False, True]
        assert [isinstance(each, Machine) and each.interrupted for each in found] == [True, False, False, False, False]
        assert isinstance(found[3], Gone)

    @needs("describes")
    def test_a_call_about_several_fails_in_our_words(self, broken: Backend, request_one: CreateRequest) -> None:
        assert isinstance(broken, DescribesSeveral)
        made = [Handle(kind="vm", id=f"i-{n:017x}", data={"region": request_one.offer.region}) for n in range(2)]
        try:
            found = broken.describe_several([[each] for each in made])
        except BackendError as error:
            found = [error]
        assert not any(isinstance(each, Machine | Gone) for each in found)

    @needs("batch")
    def test_a_call_for_several_fails_in_our_words(self, broken: Backend, request_one: CreateRequest) -> None:
        assert isinstance(broken, CreatesSeveral)
        with pytest.raises(BackendError):
            list(broken.create_several([request_one]))


def _cheapest(offers: Sequence[Offer], region: str, *, spot: bool) -> Offer:
    sold = (offer for offer in offers if (offer.region, offer.instance.resources.spot) == (region, spot))
    return min(sold, key=lambda offer: offer.price)


def _alone(backend: Backend, handles: Sequence[Handle]) -> Machine | BackendError:
    try:
        return backend.describe(handles)
    except BackendError as error:
        return error


def _comparable(answer: Machine | BackendError) -> object:
    return answer if isinstance(answer, Machine) else (type(answer), str(answer))

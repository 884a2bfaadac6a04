"""Machines that are bought together, and end together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, Machine
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.bundles import WORKER
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.errors import Gone
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite, offers_of
from tests.harness.conformance import needs

Run, End = Callable[[Sequence[Handle]], Machine], Callable[[Sequence[Handle]], None]


def each_of(request: CreateRequest, handles: Sequence[Handle]) -> list[list[Handle]]:
    """The handles as each machine of the bundle has them."""
    numbers = range(request.offer.bundle)
    return [[handle.with_(data={**handle.data, WORKER: str(at)}) for handle in handles] for at in numbers]


class Bundling(Suite):
    @pytest.fixture
    def bundle(self, offers: Sequence[Offer]) -> CreateRequest:
        """For the smallest."""
        found = (each for each in offers if each.bundle > 1 and not each.instance.resources.spot)
        return request_for(min(found, key=lambda each: (each.bundle, each.price)))

    def test_bundles_are_sold_where_the_facts_say_so(self, backend: Backend) -> None:
        bundles = [each for each in offers_of(backend) if each.bundle > 1]
        assert bool(bundles) == backend.facts.bundles
        assert all(each.terms.no_volumes and not each.is_container for each in bundles)

    @needs("bundles")
    def test_one_purchase_makes_every_machine_of_a_bundle(
        self, backend: Backend, bundle: CreateRequest, run: Run
    ) -> None:
        made = list(backend.create(bundle))
        run(made)
        assert sorted(each.handle.id for each in backend.list_owned()) == sorted(each.id for each in made)
        found = [run(handles) for handles in each_of(bundle, made)]
        assert len({each.internal_ip for each in found}) == bundle.offer.bundle
        assert "" not in {each.internal_ip for each in found}
        assert run(made) == found[0], "the first has the handles as they were yielded"

    @needs("bundles")
    def test_each_machine_of_a_bundle_has_a_token_of_its_own(
        self, backend: Backend, bundle: CreateRequest, provider: Provider
    ) -> None:
        script = provider.user_data(list(backend.create(bundle)))
        for _, instance_id, token in map(read_user_data, bundle.bundle):
            assert script.count(instance_id) == 1 == script.count(token)

    @needs("bundles")
    def test_a_bundle_that_is_requested_again_is_adopted(
        self, backend: Backend, bundle: CreateRequest, pass_lag: Callable[[], None]
    ) -> None:
        made = list(backend.create(bundle))
        pass_lag()
        assert list(backend.create(bundle)) == made
        assert len(list(backend.list_owned())) == len(made)

    @needs("bundles")
    def test_the_end_of_a_bundle_is_the_end_of_all(
        self, backend: Backend, bundle: CreateRequest, provider: Provider, run: Run, end: End
    ) -> None:
        made = list(backend.create(bundle))
        run(made)
        end(made)
        for handles in each_of(bundle, made):
            with pytest.raises(Gone):
                backend.describe(handles)
        assert provider.existing() == set()

    @needs("bundles", "spot", "spot_notice")
    def test_a_bundle_is_taken_back_as_a_whole(
        self, backend: Backend, offers: Sequence[Offer], bundle: CreateRequest, provider: Provider, run: Run
    ) -> None:
        name, region = bundle.offer.instance.name, bundle.offer.region
        sold = (each for each in offers if (each.instance.name, each.region) == (name, region))
        request = request_for(next(each for each in sold if each.instance.resources.spot), "spot")
        made = list(backend.create(request))
        run(made)
        provider.reclaim(made)
        assert all(backend.describe(handles).interrupted for handles in each_of(request, made))

    @needs("bundles")
    def test_a_lost_bundle_is_gone_for_each_machine(
        self, backend: Backend, bundle: CreateRequest, provider: Provider, run: Run, let_time_pass: LetPass
    ) -> None:
        made = list(backend.create(bundle))
        run(made)
        provider.lost(made)
        let_time_pass(600.0)
        for handles in each_of(bundle, made):
            with pytest.raises(Gone):
                backend.describe(handles)

"""Facts and offers."""

from __future__ import annotations

import contextlib

import pytest

from chalicelib.backends.spi import Backend, CreatesSeveral, DescribesSeveral, LiveOffers
from chalicelib.domain.facts import BackendFacts
from chalicelib.errors import InsufficientCapacity
from chalicelib.planning.matching.containers import GRANTABLE
from tests.backends.conformance.provider import Provider
from tests.backends.conformance.suite import ANYTHING, Suite, offers_of
from tests.harness.conformance import needs


class Offering(Suite):
    def test_facts_need_no_credentials(self, broken: Backend) -> None:
        facts = broken.facts
        assert isinstance(facts, BackendFacts)
        assert facts.name
        assert facts.create_timeout > 0 <= facts.visibility_lag
        assert facts.provisioning_timeout > facts.create_timeout

    def test_facts_repeat_nothing_that_methods_show(self, backend: Backend) -> None:
        assert not (backend.facts.volumes or backend.facts.placement_groups)
        assert (backend.facts.batch > 0) == isinstance(backend, CreatesSeveral)
        assert (backend.facts.describes > 0) == isinstance(backend, DescribesSeveral)

    def test_spot_machines_are_sold_if_the_facts_say_so(self, backend: Backend) -> None:
        assert any(offer.instance.resources.spot for offer in offers_of(backend)) == backend.facts.spot

    def test_check_accepts_good_credentials(self, backend: Backend) -> None:
        backend.check()

    def test_offers_are_priced_and_its_own(self, backend: Backend) -> None:
        offers = offers_of(backend)
        assert offers
        for offer in offers:
            assert offer.backend == backend.facts.name
            assert offer.price >= 0
            assert offer.region
            assert offer.instance.resources.cpus > 0
            if backend.facts.simulated:
                assert offer.instance.resources.description == "simulated"

    def test_offers_are_containers_where_the_facts_say_so(self, backend: Backend) -> None:
        contained = [offer for offer in offers_of(backend) if offer.is_container]
        assert bool(contained) == backend.facts.containers
        for offer in contained:
            assert GRANTABLE.issuperset(offer.terms.grants), "what nobody asks for"
            assert backend.facts.grants.issuperset(offer.terms.grants), "what its facts don't say"

    def test_offers_are_told_apart_by_their_key(self, backend: Backend) -> None:
        found = [offer.key for offer in offers_of(backend)]
        assert len(found) == len(set(found))

    def test_offers_cost_what_the_provider_asks(self, backend: Backend, provider: Provider) -> None:
        """Whatever else stands in its price list, of nothing or of something else."""
        for offer in offers_of(backend):
            assert offer.price == pytest.approx(provider.price(offer), rel=1e-3), offer.key

    def test_offers_are_the_same_when_asked_again(self, backend: Backend) -> None:
        assert sorted(offer.key for offer in offers_of(backend)) == sorted(offer.key for offer in offers_of(backend))

    def test_zones_are_of_the_offers_region(self, backend: Backend) -> None:
        zones: dict[str, set[str]] = {}
        for offer in offers_of(backend):
            for zone in offer.availability_zones or ():
                zones.setdefault(zone, set()).add(offer.region)
        assert [zone for zone, regions in zones.items() if len(regions) > 1] == []

    @needs("live_offers")
    def test_a_market_offers_nothing_outside_of_the_requested_zones(self, backend: Backend) -> None:
        """An offer that names no zone would be taken for one that is in any."""
        assert isinstance(backend, LiveOffers)
        with contextlib.suppress(InsufficientCapacity):
            found = backend.offers_for(ANYTHING.with_(zones=("nowhere-1",)))
            assert [offer for offer in found if offer.availability_zones is None] == []

    def test_close_may_be_repeated(self, backend: Backend) -> None:
        backend.close()
        backend.close()

"""The list of what is ours: complete, or an error; and nothing of anybody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from chalicelib.domain.owner import same_install
from chalicelib.errors import BackendError
from tests.backends.conformance.provider import Provider
from tests.backends.conformance.requests import INSTALL, PROJECT, request_for
from tests.backends.conformance.suite import Suite

PassLag = Callable[[], None]


def ids(handles: Sequence[Handle]) -> list[str]:
    return sorted(handle.id for handle in handles)


class Listing(Suite):
    def test_every_resource_bears_the_owner_tag(
        self, backend: Backend, request_one: CreateRequest, pass_lag: PassLag
    ) -> None:
        handles = list(backend.create(request_one))
        pass_lag()
        owned = list(backend.list_owned())
        assert sorted(map(str, (each.handle for each in owned))) == sorted(map(str, handles))
        for each in owned:
            assert same_install(each.install, INSTALL) and each.project_id == PROJECT
            assert (each.instance_id, each.epoch) == (request_one.instance_id, 0)

    def test_the_epoch_is_listed(self, backend: Backend, request_one: CreateRequest, pass_lag: PassLag) -> None:
        list(backend.create(request_for(request_one.offer, epoch=10_000)))
        pass_lag()
        assert {each.epoch for each in backend.list_owned()} == {10_000}

    def test_owned_can_be_asked_of_one_instance(
        self, backend: Backend, request_one: CreateRequest, pass_lag: PassLag
    ) -> None:
        list(backend.create(request_one))
        other = request_for(request_one.offer, "two")
        made = list(backend.create(other))
        pass_lag()
        assert ids([each.handle for each in backend.list_owned(other.instance_id)]) == ids(made)
        assert list(backend.list_owned(other.instance_id[:-1])) == []

    def test_owned_can_be_asked_of_one_region(
        self, backend: Backend, offers: Sequence[Offer], pass_lag: PassLag
    ) -> None:
        regions = {o.region: o for o in offers if not o.instance.resources.spot}
        here, there = sorted(regions)[:2]
        request = request_for(regions[here])
        made = list(backend.create(request))
        pass_lag()
        assert ids([each.handle for each in backend.list_owned(request.instance_id, here)]) == ids(made)
        assert list(backend.list_owned(request.instance_id, there)) == []

    def test_all_pages_are_listed(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: PassLag
    ) -> None:
        provider.pages_of(2)
        made = [handle for n in range(5) for handle in backend.create(request_for(request_one.offer, f"n{n}"))]
        pass_lag()
        assert ids([each.handle for each in backend.list_owned()]) == ids(made)

    def test_all_regions_are_listed(
        self, backend: Backend, offers: Sequence[Offer], provider: Provider, pass_lag: PassLag
    ) -> None:
        regions = {o.region: o for o in offers if not o.instance.resources.spot}
        assert len(regions) > 1
        made = [handle for region, offer in regions.items() for handle in backend.create(request_for(offer, region))]
        pass_lag()
        assert ids([each.handle for each in backend.list_owned()]) == ids(made)
        assert provider.existing() == set(ids(made))

    def test_a_region_that_doesnt_answer_makes_the_list_fail(
        self,
        backend: Backend,
        offers: Sequence[Offer],
        request_one: CreateRequest,
        provider: Provider,
        pass_lag: PassLag,
    ) -> None:
        """What isn't shown counts as gone, so a part of the list is worse than none."""
        list(backend.create(request_one))
        pass_lag()
        for region in {offer.region for offer in offers}:
            provider.region_down(region)
            with pytest.raises(BackendError):
                list(backend.list_owned())

    def test_a_failure_in_the_middle_makes_the_list_fail(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: PassLag
    ) -> None:
        provider.pages_of(1)
        for n in range(3):
            list(backend.create(request_for(request_one.offer, f"n{n}")))
        pass_lag()
        provider.page_fails()
        with pytest.raises(BackendError):
            list(backend.list_owned())

    def test_what_has_ended_isnt_listed(
        self, backend: Backend, request_one: CreateRequest, pass_lag: PassLag, end: Callable[[Sequence[Handle]], None]
    ) -> None:
        one, other = (list(backend.create(request_for(request_one.offer, name))) for name in ("one", "other"))
        pass_lag()
        end(one)
        assert ids([each.handle for each in backend.list_owned()]) == ids(other)

    def test_strangers_are_never_taken_for_ours(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: PassLag
    ) -> None:
        """What has no tags, or unreadable ones, isn't listed; what is another installation's says so."""
        strangers = provider.strangers(backend, request_one.offer)
        made = list(backend.create(request_one))
        pass_lag()
        assert strangers and strangers < provider.existing()
        assert ids([each.handle for each in backend.list_owned() if same_install(each.install, INSTALL)]) == ids(made)
        assert ids([each.handle for each in backend.list_owned(request_one.instance_id)]) == ids(made)

    def test_strangers_are_neither_adopted_nor_touched(
        self,
        backend: Backend,
        request_one: CreateRequest,
        provider: Provider,
        pass_lag: PassLag,
        end: Callable[[Sequence[Handle]], None],
    ) -> None:
        strangers = provider.strangers(backend, request_one.offer)
        pass_lag()
        made = list(backend.create(request_one))
        assert strangers.isdisjoint(ids(made))
        end(made)
        assert provider.existing() == strangers

    def test_a_leftover_of_a_creation_is_listed(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, pass_lag: PassLag
    ) -> None:
        """So that the sweep ends it, if nobody who knew of it is left."""
        first = next(backend.create(request_one))
        pass_lag()
        (owned,) = backend.list_owned()
        assert (owned.handle, owned.instance_id) == (first, request_one.instance_id)
        assert provider.existing() == {first.id}

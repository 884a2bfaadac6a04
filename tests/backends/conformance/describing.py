"""Describing a machine: pending, running, about to be reclaimed, gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, Machine
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from chalicelib.errors import ContainerFailed, Gone, InsufficientCapacity, Transient
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite
from tests.harness.conformance import needs

Run = Callable[[Sequence[Handle]], Machine]
SOON = 10 * 60.0  # seconds in which whatever is announced has happened


class Describing(Suite):
    def test_a_machine_is_pending_before_it_runs(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, run: Run
    ) -> None:
        provider.invisible_for(0.0)
        handles = list(backend.create(request_one))
        assert backend.describe(handles).state == "pending"
        assert run(handles).state == "running"

    def test_a_running_machine_has_an_address(self, backend: Backend, request_one: CreateRequest, run: Run) -> None:
        handles = list(backend.create(request_one))
        found = run(handles)
        assert found.hostname
        assert found.internal_ip or not backend.facts.machines, "of a container, only the agent in it may know that"
        assert backend.describe(handles) == found

    def test_the_order_of_the_handles_doesnt_matter(
        self, backend: Backend, request_one: CreateRequest, run: Run
    ) -> None:
        handles = list(backend.create(request_one))
        assert run(handles) == backend.describe(handles[::-1])

    def test_each_machine_is_described_by_itself(self, backend: Backend, request_one: CreateRequest, run: Run) -> None:
        made = [list(backend.create(request_for(request_one.offer, f"n{n}"))) for n in range(5)]
        found = [run(handles) for handles in made]
        assert len({machine.internal_ip or machine.hostname for machine in found}) == len(made)
        assert [backend.describe(handles) for handles in reversed(made)] == found[::-1]

    @needs("visibility_lag")
    def test_a_machine_that_doesnt_show_yet_isnt_lost(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, run: Run
    ) -> None:
        """However long that takes, within the facts."""
        provider.invisible_for(backend.facts.visibility_lag / SECOND)
        handles = list(backend.create(request_one))
        with pytest.raises((Gone, Transient)):
            backend.describe(handles)
        assert run(handles).state == "running"

    def test_a_machine_that_is_ended_is_gone_in_the_end(
        self, backend: Backend, request_one: CreateRequest, run: Run, end: Callable[[Sequence[Handle]], None]
    ) -> None:
        handles = list(backend.create(request_one))
        run(handles)
        end(handles)
        with pytest.raises(Gone):
            backend.describe(handles)

    def test_a_late_stockout_is_a_lack_of_capacity(
        self,
        backend: Backend,
        request_one: CreateRequest,
        provider: Provider,
        pass_lag: Callable[[], None],
        let_time_pass: LetPass,
        end: Callable[[Sequence[Handle]], None],
    ) -> None:
        """So the next offer is tried, as if it had been refused at once."""
        provider.falls_short(request_one.offer)
        handles = list(backend.create(request_one))
        pass_lag()
        let_time_pass(30.0)
        with pytest.raises(Gone) as raised:
            backend.describe(handles)
        assert raised.value.refused is InsufficientCapacity
        end(handles)
        assert provider.existing() == set() and list(backend.list_owned()) == []

    def test_a_machine_that_is_lost_is_gone(
        self, backend: Backend, request_one: CreateRequest, provider: Provider, let_time_pass: LetPass
    ) -> None:
        handles = list(backend.create(request_one))
        provider.lost(handles)
        let_time_pass(SOON)
        with pytest.raises(Gone) as raised:
            backend.describe(handles)
        assert raised.value.refused is None
        assert "vm" not in {one.handle.kind for one in backend.list_owned()}

    @needs("spot", "spot_notice")
    def test_notice_is_passed_on_and_the_machine_goes(
        self, backend: Backend, offers: Sequence[Offer], provider: Provider, run: Run, let_time_pass: LetPass
    ) -> None:
        spot = [offer for offer in offers if offer.instance.resources.spot]
        handles = list(backend.create(request_for(min(spot, key=lambda offer: offer.price))))
        assert not run(handles).interrupted
        provider.reclaim(handles)
        assert backend.describe(handles).interrupted
        let_time_pass(SOON)
        with pytest.raises(Gone):
            backend.describe(handles)

    @needs("spot", "spot_notice")
    def test_notice_to_one_is_not_given_to_others(
        self, backend: Backend, offers: Sequence[Offer], provider: Provider, run: Run
    ) -> None:
        spot = min((o for o in offers if o.instance.resources.spot), key=lambda offer: offer.price)
        one, other = (list(backend.create(request_for(spot, name))) for name in ("one", "other"))
        run(one), run(other)
        provider.reclaim(one)
        assert (backend.describe(one).interrupted, backend.describe(other).interrupted) == (True, False)

    @needs("spot")
    def test_a_spot_machine_that_is_taken_back_is_gone_and_leaves_nothing(
        self,
        backend: Backend,
        offers: Sequence[Offer],
        provider: Provider,
        run: Run,
        let_time_pass: LetPass,
        end: Callable[[Sequence[Handle]], None],
    ) -> None:
        """With or without a notice; and that isn't the job's fault."""
        spot = min((o for o in offers if o.instance.resources.spot), key=lambda offer: offer.price)
        handles = list(backend.create(request_for(spot)))
        run(handles)
        provider.reclaim(handles)
        let_time_pass(SOON)
        with pytest.raises(Gone) as raised:
            backend.describe(handles)
        assert raised.value.refused is not ContainerFailed and str(raised.value)
        end(handles)
        assert provider.existing() == set()

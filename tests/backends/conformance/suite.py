"""What the cases share: the fixtures that a backend's test gives, and waiting by the provider's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from chalicelib.backends.spi import Backend, CreateRequest, LiveOffers, Machine, facts_of
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.errors import BackendError, Gone, Transient
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.harness.conformance import Conformance

ENOUGH = 50  # asks before something that should happen is called missing
ANYTHING = OfferRequest(resources=ResourcesSpec(), spot=None)


class Suite(Conformance):
    """Fixtures to give: `backend` and its `provider`; `broken`, whose provider fails every call; `let_time_pass`."""

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def provider(self) -> Provider:
        raise NotImplementedError

    @pytest.fixture
    def broken(self) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def let_time_pass(self) -> LetPass:
        raise NotImplementedError

    @pytest.fixture
    def facts(self, backend: Backend) -> BackendFacts:
        return facts_of(backend)

    @pytest.fixture
    def request_one(self, offers: Sequence[Offer]) -> CreateRequest:
        on_demand = [offer for offer in offers if not offer.instance.resources.spot]
        return request_for(min(on_demand, key=lambda offer: offer.price))

    @pytest.fixture
    def offers(self, backend: Backend) -> Sequence[Offer]:
        """The same for every case, so they may be remembered."""
        return offers_of(backend)

    @pytest.fixture
    def pass_lag(self, backend: Backend, let_time_pass: LetPass) -> Callable[[], None]:
        """What was created shows from now on."""
        return lambda: let_time_pass(backend.facts.visibility_lag / SECOND)

    @pytest.fixture
    def run(self, backend: Backend, let_time_pass: LetPass) -> Callable[[Sequence[Handle]], Machine]:
        """The machine, once it runs."""

        def run(handles: Sequence[Handle]) -> Machine:
            let_time_pass(backend.facts.visibility_lag / SECOND)
            for _ in range(ENOUGH):
                machine = backend.describe(handles)
                if machine.state == "running":
                    return machine
                let_time_pass(5.0)
            pytest.fail("the machine never ran")

        return run

    @pytest.fixture
    def end(self, backend: Backend, let_time_pass: LetPass) -> Callable[[Sequence[Handle]], None]:
        """Everything asked to end, the last first, until all of it is gone, as the engine does it."""

        return partial(end_all, backend, let_time_pass)


def offers_of(backend: Backend, nodes: int = 1) -> Sequence[Offer]:
    """All that it lists or, of a market, what it answers to a request without conditions."""
    return backend.offers_for(ANYTHING.with_(nodes=nodes)) if isinstance(backend, LiveOffers) else backend.offers()


def refusal_of(
    backend: Backend, request: CreateRequest, let_time_pass: LetPass
) -> tuple[str, type[BackendError], list[Handle]]:
    """Why there is no machine for the request: what its creation raises or, of a provider that looks for room later,
    what describes it then; and what was created all the same."""
    made: list[Handle] = []
    try:
        made.extend(backend.create(request))
    except BackendError as error:
        return str(error), type(error), made
    let_time_pass(backend.facts.visibility_lag / SECOND + 30.0)
    with pytest.raises(Gone) as gone:
        backend.describe(made)
    return str(gone.value), gone.value.refused or Gone, made


def end_all(backend: Backend, let_time_pass: LetPass, handles: Sequence[Handle]) -> None:
    for _ in range(ENOUGH):
        if all([is_gone(backend, handle) for handle in reversed(handles)]):
            return
        let_time_pass(5.0)
    pytest.fail(f"of {handles}, something is still there")


def is_gone(backend: Backend, handle: Handle) -> bool:
    """Asks for its end. An answer that proves nothing is asked for again."""
    try:
        backend.terminate(handle)
    except Gone:
        return True
    except BackendError as error:
        if not patient(error):
            raise
    return False


def patient(error: BackendError) -> bool:
    """Does the engine ask again?"""
    return isinstance(error, Transient) or type(error).__name__ in ("InUse", "NotYet")


def cut_short(backend: Backend, request: CreateRequest, after: int) -> list[Handle]:
    """A creation whose process dies after so many resources."""
    making = backend.create(request)
    made = []
    for _ in range(after):
        handle = next(making, None)
        if handle is not None:
            made.append(handle)
    if hasattr(making, "close"):
        making.close()
    return made

"""What the kit gives the backend of Cirrus, beyond what every backend must do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.instants import SECOND
from chalicelib.errors import Throttled, Unfit
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.kit.backend import CirrusBackend
from tests.backends.kit.cirrus import KEY, SECRET, Cirrus


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cloud(clock: Clock) -> Cirrus:
    return Cirrus(clock.now)


@pytest.fixture
def backend(cloud: Cirrus, clock: Clock) -> CirrusBackend:
    return CirrusBackend(KEY, SECRET, clock.now, send=cloud.send)


def test_all_calls_of_an_account_share_one_limit(cloud: Cirrus, clock: Clock, backend: CirrusBackend) -> None:
    request = request_for(backend.offers()[0])
    limited = CirrusBackend(KEY, SECRET, clock.now, send=cloud.send, burst=2)
    made = list(limited.create(request))
    sent = len(cloud.calls)
    for _ in range(3):
        with pytest.raises(Throttled) as found:
            limited.terminate(made[0])
    assert (found.value.retry_after, len(cloud.calls)) == (0.2, sent), "what is refused here isn't sent"
    clock.at += round(found.value.retry_after * SECOND)
    limited.terminate(made[0])


def test_a_creation_that_was_throttled_midway_begins_anew(cloud: Cirrus, clock: Clock, backend: CirrusBackend) -> None:
    request = request_for(backend.offers()[0])
    limited = CirrusBackend(KEY, SECRET, clock.now, send=cloud.send, burst=2)
    limited.check()
    with pytest.raises(Throttled):
        list(limited.create(request))
    clock.at += SECOND
    assert len(list(limited.create(request))) == 1 == len(cloud.alive())


def test_regions_are_looked_up_once(cloud: Cirrus, backend: CirrusBackend) -> None:
    for _ in range(3):
        list(backend.list_owned())
    assert cloud.calls.count("GET regions") == 1


def test_one_list_describes_all_machines_of_a_region(cloud: Cirrus, backend: CirrusBackend) -> None:
    offers = {offer.region: offer for offer in backend.offers()}
    made = [list(backend.create(request_for(offer, f"n{n}"))) for offer in offers.values() for n in range(3)]
    cloud.calls.clear()
    assert [getattr(found, "state", found) for found in backend.describe_several(made)] == ["pending"] * 6
    assert cloud.calls == ["GET instances"] * 2


def test_cards_are_offered_by_our_names_and_a_share_of_one_is_not(backend: CirrusBackend) -> None:
    found = {offer.instance.name: offer.instance.resources.gpus for offer in backend.offers()}
    assert set(found) == {"c4", "l4x1", "h100x8"}
    assert [(card.name, card.memory_mib) for card in found["h100x8"]] == [("H100", 80 * 1024)] * 8


def test_tags_that_it_doesnt_take_are_refused_before_anything_is_made(cloud: Cirrus, backend: CirrusBackend) -> None:
    request = request_for(backend.offers()[0])
    with pytest.raises(Unfit, match="Cirrus takes no such tags: `Team`"):
        list(backend.create(replace(request, tags=(*request.tags, ("Team", "ml")))))
    assert cloud.alive() == []

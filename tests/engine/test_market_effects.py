"""A market is asked where its SDK is, and whoever waits for the answer is woken."""

from __future__ import annotations

from typing import Any

from chalicelib.backends.accounts import Accounts
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.markets import MarketEffects
from chalicelib.engine.effects.table import from_message, to_message
from chalicelib.planning.placing.markets import AskMarket
from tests.world import nouns as b
from tests.world.ports import accounts

REQUEST = OfferRequest(resources=ResourcesSpec(), regions=("eu",))
EFFECT = AskMarket("market/bazaar/j", "bazaar", b.NOW + SECOND, b.PROJECT, REQUEST.model_dump_json())


def test_the_projects_market_is_asked_and_its_queue_is_woken() -> None:
    requests: list[tuple[str, OfferRequest]] = []
    woken: list[str] = []
    unused: Any = None
    markets = Accounts(accounts(b.FACTS["aws"].with_(name="bazaar"), b.FACTS["aws"]).accounts())
    here = EffectContext(
        unused,
        unused,
        markets,
        "install",
        b"k",
        ask_market=lambda account, request: requests.append((account.key, request)),
        wake=woken.extend,
    )
    MarketEffects(here).ask(EFFECT)
    assert requests == [("bazaar-all", REQUEST)] and woken == [f"queue/{b.PROJECT}"]


def test_the_effect_travels_as_a_message() -> None:
    assert from_message(to_message(EFFECT)) == EFFECT
    assert OfferRequest.model_validate_json(EFFECT.request).key == REQUEST.key


def test_a_request_has_one_key_however_it_was_made() -> None:
    assert REQUEST.key == OfferRequest.model_validate_json(REQUEST.model_dump_json()).key
    assert REQUEST.key != REQUEST.with_(regions=None).key

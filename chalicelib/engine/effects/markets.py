"""Asking markets what they have, for jobs and gateways that wait for that. The answers are kept beside the catalog,
and nothing is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.engine.effects.context import EffectContext
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.placing.markets import AskMarket


class MarketEffects:
    effects: ClassVar[Mapping[type[Effect], str]] = {AskMarket: "ask"}

    def __init__(self, here: EffectContext) -> None:
        self.here = here

    def ask(self, effect: AskMarket) -> None:
        request = OfferRequest.model_validate_json(effect.request)
        for account in self.here.backends.accounts(effect.project_id):
            if account.facts.name == effect.backend:
                self.here.ask_market(account, request)
        self.here.wake([effect.wakes or f"queue/{effect.project_id}"])

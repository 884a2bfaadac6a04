"""Faults of facts, credentials and offers, and of the backend as an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Availability, Offer
from chalicelib.errors import InvalidCredentials
from tests.backends.planted.port import PortFault, case, noticed_by


@noticed_by("facts_need_no_credentials")
class ExpectsMachinesTooSoon(PortFault):
    @property
    def facts(self) -> BackendFacts:
        facts: BackendFacts = self.inner.facts
        return facts.with_(provisioning_timeout=facts.create_timeout)


@noticed_by("facts_repeat_nothing_that_methods_show")
class FlagsWhatMethodsShow(PortFault):
    @property
    def facts(self) -> BackendFacts:
        facts: BackendFacts = self.inner.facts
        return facts.with_(volumes=True)


@noticed_by("facts_repeat_nothing_that_methods_show")
class CountsWhatItCannotDescribe(PortFault):
    @property
    def facts(self) -> BackendFacts:
        facts: BackendFacts = self.inner.facts
        return facts.with_(describes=0 if facts.describes else 10)


@noticed_by("spot_machines_are_sold_if_the_facts_say_so")
class ClaimsTheContraryOfSpot(PortFault):
    @property
    def facts(self) -> BackendFacts:
        facts: BackendFacts = self.inner.facts
        return facts.with_(spot=not facts.spot)


@noticed_by("check_accepts_good_credentials")
class RefusesGoodCredentials(PortFault):
    def check(self) -> None:
        raise InvalidCredentials("refused")


@noticed_by("close_may_be_repeated")
class ClosesOnce(PortFault):
    def close(self) -> None:
        inner, self.inner = self.inner, None
        if inner is None:
            raise RuntimeError("closed already")
        inner.close()


@noticed_by("a_backend_doesnt_show_its_secrets")
class ShowsAllThatItHolds(PortFault):
    def __repr__(self) -> str:
        return " ".join(_texts(self.inner, 12))


def _texts(held: Any, depth: int) -> Iterator[str]:
    if isinstance(held, str):
        yield held
    elif depth and isinstance(held, Mapping | list | tuple):
        for each in held.values() if isinstance(held, Mapping) else held:
            yield from _texts(each, depth - 1)
    elif depth and not callable(held):
        yield from _texts(getattr(held, "__dict__", {}), depth - 1)


class OtherOffers(PortFault):
    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        raise NotImplementedError

    def offers(self) -> Sequence[Offer]:
        return self.changed(self.inner.offers())

    def answer(self, request: OfferRequest) -> Sequence[Offer]:
        """A market's (`offers_for`)."""
        return self.changed(self.inner.offers_for(request))


@noticed_by("offers_are_priced_and_its_own")
class NamesNoBackend(OtherOffers):
    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        return [offer.with_(backend="") for offer in offers]


@noticed_by("offers_are_told_apart_by_their_key")
class OffersTheSameTwice(OtherOffers):
    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        return [*offers, offers[0]]


@noticed_by("offers_cost_what_the_provider_asks")
class RoundsPrices(OtherOffers):
    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        return [offer.with_(price=round(offer.price)) for offer in offers]


@noticed_by("zones_are_of_the_offers_region")
class NamesZonesAlikeEverywhere(OtherOffers):
    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        return [offer.with_(availability_zones=("zone-a",)) for offer in offers]


@noticed_by("a_market_offers_nothing_outside_of_the_requested_zones")
class OffersWhateverTheZones(PortFault):
    def answer(self, request: OfferRequest) -> Sequence[Offer]:
        return self.inner.offers_for(request.with_(zones=None))  # type: ignore[no-any-return]


@noticed_by("offers_are_the_same_when_asked_again")
class OffersEachOnce(OtherOffers):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._offered: set[str] = set()

    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        fresh = [offer for offer in offers if offer.key not in self._offered]
        self._offered |= {offer.key for offer in fresh}
        return fresh


@noticed_by("a_reservation_is_an_offer_of_its_own")
class OffersNoReservation(OtherOffers):
    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        return [offer for offer in offers if offer.reservation is None]


@noticed_by(
    case("a_reservation_that_is_not_there_now_cannot_be_bought_from", state="scheduled"),
    "a_full_reservation_has_no_capacity",
)
class SellsEveryReservationAtOnce(OtherOffers):
    def changed(self, offers: Sequence[Offer]) -> Sequence[Offer]:
        return [offer.with_(availability=Availability.available) for offer in offers]

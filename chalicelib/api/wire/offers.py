"""Offers on the wire. Their field names are already the wire's, so they are sent as stored, but without their terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from chalicelib.api.wire.spliced import spliced
from chalicelib.domain.instants import SECOND, iso, spoken
from chalicelib.domain.offers import InstanceType, Offer
from chalicelib.engine.ports import Age
from chalicelib.usecases.runs.market_offers import AskedMarket

if TYPE_CHECKING:
    from chalicelib import contract


def instance_type_json(instance_type: InstanceType) -> contract.InstanceType:
    text: contract.InstanceType = spliced(instance_type.__pydantic_serializer__.to_json(instance_type))
    return text


def offer_json(offer: Offer) -> contract.Offer:
    """Clients expect `backend_data`, and need nothing of what is in it."""
    text = offer.__pydantic_serializer__.to_json(offer, exclude={"terms"})
    found: contract.Offer = spliced(b'{"backend_data":{},' + text[1:])
    return found


def offers_json(offers: Iterable[Offer]) -> list[contract.Offer]:
    return [offer_json(offer) for offer in offers]


def ages_json(ages: Mapping[str, Age]) -> list[contract.OffersAge]:
    """The age of each backend's offers, for clients that show it."""
    return [
        {
            "backend": backend,
            "taken_at": None if age.taken_at is None else iso(age.taken_at),
            "error": age.error or None,
            "prices": age.prices or None,
            "outlived": None if age.outlived is None else spoken(age.outlived),
        }
        for backend, age in sorted(ages.items())
    ]


def asked_json(asked: Iterable[AskedMarket]) -> list[contract.OffersAsked]:
    """What backends without a list of offers were asked for, and when, for clients that show it."""
    return [
        {
            "backend": each.backend,
            "request": each.request,
            "asked_at": iso(each.at),
            "seconds": None if each.answer is None else round(each.answer.took / SECOND, 3),
            "offers": 0 if each.answer is None else len(each.answer.offers),
            "error": each.error or None,
            "lacking": (each.answer and each.answer.lacking.rstrip(".")) or None,
        }
        for each in asked
    ]

"""Offers on the wire. Their field names are already the wire's, so they are sent as stored, but without their terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from chalicelib.domain.instants import SECOND, iso, spoken
from chalicelib.domain.noun import Value
from chalicelib.domain.offers import Offer
from chalicelib.engine.ports import Age
from chalicelib.usecases.runs.market_offers import AskedMarket


def text_of(value: Value) -> orjson.Fragment:
    """A value whose field names are the wire's, as JSON text to be spliced in."""
    return orjson.Fragment(value.__pydantic_serializer__.to_json(value))


def offer_json(offer: Offer) -> orjson.Fragment:
    """Clients expect `backend_data`, and need nothing of what is in it."""
    text = offer.__pydantic_serializer__.to_json(offer, exclude={"terms"})
    return orjson.Fragment(b'{"backend_data":{},' + text[1:])


def offers_json(offers: Iterable[Offer]) -> list[Any]:
    return [offer_json(offer) for offer in offers]


def ages_json(ages: Mapping[str, Age]) -> list[dict[str, Any]]:
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


def asked_json(asked: Iterable[AskedMarket]) -> list[dict[str, Any]]:
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

"""Offers on the wire. Their field names are the wire's already, so one is written as it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from chalicelib.domain.noun import Value
from chalicelib.domain.offers import Offer


def text_of(value: Value) -> orjson.Fragment:
    """A value whose field names are the wire's, as JSON text to be spliced in."""
    return orjson.Fragment(value.__pydantic_serializer__.to_json(value))


def offer_json(offer: Offer) -> orjson.Fragment:
    return text_of(offer)


def offers_json(offers: Iterable[Offer]) -> list[Any]:
    return [text_of(offer) for offer in offers]

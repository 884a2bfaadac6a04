"""The words for what a market is asked."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.specs.resources import ResourcesSpec

WORDS = (
    ({}, {}, "cpu=2.. memory=8GB.. disk=100GB.., on-demand"),
    ({"gpu": "amd:MI300X:2"}, {"spot": True}, "cpu=2.. memory=8GB.. disk=100GB.. gpu=amd:MI300X:2, spot"),
    (
        {"cpu": "arm:4..8", "memory": "0.5GB..16GB", "disk": None, "gpu": {"memory": "24GB", "total_memory": "48GB.."}},
        {"spot": None, "nodes": 4, "max_price": 2.5},
        "4 of cpu=arm:4..8 memory=0.5GB..16GB gpu=24GB:1..:total 48GB.., spot or on-demand, $2.5 an hour at most",
    ),
    (
        {"disk": None, "gpu": {"name": ["H100", "H200"], "compute_capability": 9}},
        {"regions": ("a", "b", "c", "d"), "zones": ("a1",), "instance_types": ("big",), "options": {"order": "price"}},
        "cpu=2.. memory=8GB.. gpu=H100,H200:1..:cc 9.0, on-demand, in a, b, c and 1 more, in a1, of big, order=price",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("resources", "others", "words"), WORDS, ids=range(len(WORDS)))
def test_a_request_says_what_it_asks_for_as_a_configuration_would(
    resources: dict[str, Any], others: dict[str, Any], words: str
) -> None:
    assert OfferRequest(resources=ResourcesSpec.model_validate(resources), **others).in_words == words

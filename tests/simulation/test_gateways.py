"""Histories with gateways in each: they go right. The planted bugs of gateways are with the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.harness.examples import seeds
from tests.simulation.history import History
from tests.simulation.stories import STORIES, gateways


class Gateways(gateways.Gateways):
    likely = 1.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged, as it should be, but thousands of them would only fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", seeds(4))
def test_histories_of_gateways_end_well(seed: int) -> None:
    History(seed, stories=[Gateways if kind is gateways.Gateways else kind for kind in STORIES]).play()

"""Histories with gateways in each: they go right. The planted bugs of gateways are with the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.harness.examples import seeds
from tests.simulation.history import always, play
from tests.simulation.stories import gateways


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged, as it should be, but thousands of them would only fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", seeds(4))
def test_histories_of_gateways_end_well(seed: int) -> None:
    play(seed, stories=always(gateways.Gateways))

"""Machines that are bought together, on a plane with faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.bundles import OF_BUNDLES
from tests.simulation.history import History


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged; see `test_histories`."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(4))
def test_bundles_are_bought_whole_used_whole_and_given_back_whole(seed: int) -> None:
    History(seed, stories=OF_BUNDLES).play()

"""Gangs that race for volumes, on a plane with faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.history import History
from tests.simulation.volume_gangs import STORIES_WITH_VOLUME_GANGS


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged; see `test_histories`."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(6))
def test_gangs_that_race_for_volumes_end_well(seed: int) -> None:
    History(seed, stories=STORIES_WITH_VOLUME_GANGS).play()

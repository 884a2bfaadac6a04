"""Containers in place of machines, on a plane with faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.container_gangs import CONTAINER_GANGS
from tests.simulation.containers import STORIES_WITH_CONTAINERS
from tests.simulation.history import History


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged; see `test_histories`."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(8))
def test_jobs_and_their_containers_end_well(seed: int) -> None:
    History(seed, stories=STORIES_WITH_CONTAINERS).play()


@pytest.mark.parametrize("seed", range(3))
def test_gangs_of_eight_get_all_their_containers_or_none(seed: int) -> None:
    """`make sim GANGS=1 SEEDS=500` plays many."""
    History(seed, stories=CONTAINER_GANGS).play()

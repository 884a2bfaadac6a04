"""Histories that must go right."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.history import play
from tests.simulation.seeds import FAILED

SEEDS = 40
BATCH = 10


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged, as it should be, but thousands of them would only fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("start", range(0, SEEDS, BATCH))
def test_histories_end_well(start: int) -> None:
    """Any Violation names what went wrong; `python -m tests.simulation --seed K` prints that history."""
    for seed in range(start, start + BATCH):
        print(f"repro: python -m tests.simulation --seed {seed}")
        play(seed)


@pytest.mark.parametrize("seed", FAILED)
def test_seeds_that_failed_once(seed: int) -> None:
    play(seed)


def test_same_seed_same_history() -> None:
    assert play(7) == play(7)

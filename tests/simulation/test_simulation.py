"""Histories that must go right, and planted bugs that must be found."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from tests.simulation.planted import PLANTED, found_by
from tests.simulation.seeds import FAILED
from tests.simulation.story import play

SEEDS = 200
BATCH = 20


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged, as it should be; thousands of them would only fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("start", range(0, SEEDS, BATCH))
def test_histories_end_well(start: int) -> None:
    """Any Violation names what went wrong; `python -m tests.simulation --seed K` tells that history."""
    for seed in range(start, start + BATCH):
        print(f"repro: python -m tests.simulation --seed {seed}")
        play(seed)


@pytest.mark.parametrize("seed", FAILED)
def test_seeds_that_failed_once(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    found = found_by(PLANTED[name])
    assert found is not None, f"no seed of {PLANTED[name].seeds} finds it"
    assert re.search(PLANTED[name].symptom, found[1])


def test_same_seed_same_history() -> None:
    assert play(7) == play(7)

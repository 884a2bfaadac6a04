"""Histories that must go right."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.history import History, play
from tests.simulation.seeds import CHOSEN, FAILED
from tests.simulation.stories import STORIES


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged, as it should be, but thousands of them would only fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", CHOSEN)
def test_histories_end_well(seed: int) -> None:
    """Any Violation names what went wrong; `python -m tests.simulation --seed K` prints that history."""
    play(seed)


def test_each_story_has_a_part_under_each_root() -> None:
    there = {
        (type(story), history.scene.site.executions is None)
        for history in map(History, (*CHOSEN, *FAILED))
        for story in history.stories
    }
    assert there == {(story, embedded) for story in STORIES for embedded in (True, False)}


@pytest.mark.parametrize("seed", FAILED)
def test_seeds_that_failed_once(seed: int) -> None:
    play(seed)


def test_same_seed_same_history() -> None:
    assert play(7) == play(7)

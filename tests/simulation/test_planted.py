"""Planted bugs that must be found, each by the invariant that it breaks."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.planted import PLANTED, hunt


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every fault is logged, as it should be, but thousands of them would only fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str) -> None:
    bug = PLANTED[name]
    found = hunt(bug)
    assert found.seed is not None, f"in {bug.seeds} seeds nobody said that `{bug.breaks.name}` is broken"

"""What a run writes is within its budget, and the docs say what it is."""

from __future__ import annotations

import pytest

from tests.bench import units
from tests.bench.month import one_run

BUDGET = 48


@pytest.mark.slow
def test_a_run_is_within_its_budget_and_the_docs_have_its_commits() -> None:
    run, erased = one_run()
    assert sum(each.units for each in run) <= BUDGET, units.table(run)
    assert units.PAGE.read_text(encoding="utf-8") == units.page(run, erased), "python -m tests.bench.units --record"

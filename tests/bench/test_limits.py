"""What one server carries: how the loads grow, and the page that shows what was recorded of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from docs import limits_page
from tests.bench import limits
from tests.bench.limits import BOUND, BUDGET, Carried, climbed, slowest


def measure(seen: list[int], took: Callable[[int], float]) -> limits.Measure:
    def one(step: int) -> Carried:
        seen.append(step)
        return Carried(step, took(step))

    return one


def test_a_load_grows_until_answers_take_too_long() -> None:
    seen: list[int] = []
    found = climbed((1, 2, 4, 8), measure(seen, lambda step: BOUND if step < 4 else BOUND + 1), lambda: 0.0)
    assert found == Carried(2, BOUND) and seen == [1, 2, 4]


def test_at_the_last_step_it_ends_and_a_server_that_is_too_slow_at_once_carries_nothing() -> None:
    assert climbed((1, 2), measure([], lambda _: 1.0), lambda: 0.0) == Carried(2, 1.0)
    assert climbed((1, 2), measure([], lambda _: BOUND + 1), lambda: 0.0) == Carried()


def test_no_step_is_begun_after_its_time() -> None:
    times = iter([0.0, 0.0, BUDGET + 1])
    seen: list[int] = []
    assert climbed((1, 2, 4), measure(seen, lambda _: 1.0), lambda: next(times)).size == 1 and seen == [1]


def test_one_in_a_hundred_is_the_slowest_of_these() -> None:
    assert slowest([0.001] * 99 + [0.2]) == 200.0
    assert slowest([0.001] * 198 + [0.2, 5.0]) == 200.0
    assert slowest([0.003]) == 3.0


def test_the_page_shows_what_was_recorded() -> None:
    assert limits_page.PAGE.read_text(encoding="utf-8") == limits_page.page(), "make docs"


def test_the_pages_words_are_the_benchs() -> None:
    page = " ".join(limits_page.PAGE.read_text().split())
    assert f"took longer than {BOUND:.0f} ms once in a hundred times" in page
    assert f"to {limits.HOSTS[-1]:,} hosts, {limits.QUEUED[-1]:,} waiting runs" in page
    assert f"{limits.CALLERS[-1]} callers and {limits.FOLLOWERS[-1]} followers at most" in page
    assert "python -m tests.bench --only limits" in page


def test_figures_are_rounded_down(tmp_path: Path) -> None:
    names = [name for load in limits_page.LOADS for name in load[1:]]
    figures = {f"limits.{name}": {"median": 1234.5, "low": 1, "high": 1} for name in names}
    machine = {"cores": 2, "cpu": "any", "python": "3.13.1"}
    (tmp_path / "bench.json").write_text(json.dumps({"figures": figures, "machine": machine, "date": "2030-01-02"}))
    text = limits_page.page(tmp_path / "bench.json")
    assert "| 1,200 | 1234 ms |" in text and "Measured on 2030-01-02: 2 cores, Python 3.13.1." in text

"""What is tried next, which trial is best, and why a search ends."""

from __future__ import annotations

from typing import Any

import pytest

from cli.presets.search import DEFAULT_SECONDS, Finish, Goal, Try, best, finish, missed, next_step, seconds_of_a_trial
from tests.cli.presets.samples import benchmark, configuration, trial

GOAL = Goal(trials=4, concurrency=2, min_context_length=4096, max_ttft=500, base="m", served_name="m")


def on(price: float, **changes: Any) -> Any:
    found = trial(**changes)
    return {**found, "machine": {**found["machine"], "price": price}}


def test_the_first_is_a_baseline_unless_none_is_wanted() -> None:
    assert next_step(GOAL, []) == Try(1, baseline=True)
    assert next_step(GOAL, [trial()]) == Try(2, baseline=False)
    assert next_step(Goal(**{**vars(GOAL), "baseline": False}), []) == Try(1, baseline=False)


def test_it_ends_after_its_trials_whatever_came_of_them() -> None:
    four = [trial(1, error="slow"), trial(2, None, error="gone"), trial(3), trial(4, 100.0)]
    end = next_step(GOAL, four)
    assert isinstance(end, Finish) and (end.status, end.best) == ("done", 3)
    assert end.reason == "All 4 trials are done. The best is trial 3: 1500 tokens/s, $0.463 a million tokens."


def test_it_gives_up_when_nothing_can_be_measured() -> None:
    lost = [trial(number, None, error=f"out of memory {number}") for number in (1, 2, 3)]
    assert isinstance(next_step(GOAL, lost[:2]), Try)
    end = next_step(GOAL, lost)
    assert end == Finish(
        "failed",
        "3 trials in a row weren't measured; the last one: out of memory 3. None of 3 keeps to all limits.",
    )
    assert isinstance(next_step(GOAL, [*lost[:2], trial(3)]), Try), "one was measured in between"


def test_what_was_found_before_a_stop_is_kept() -> None:
    end = finish([trial(1)], "Stopped, as asked.", stopped=True)
    assert (end.status, end.best) == ("stopped", 1)
    assert finish([], "Stopped, as asked.", stopped=True) == Finish("stopped", "Stopped, as asked.")


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        ([], None),
        ([trial(1, error="slow")], None),
        ([trial(1, 900.0), trial(2, 1500.0)], 2),  # on one machine the fastest
        ([trial(1), trial(2)], 1),  # the first of equals
        ([on(2.0, number=1, speed=1000.0), on(20.0, number=2, speed=3000.0)], 1),  # cheaper tokens
        ([on(0.0, number=1, speed=10.0), on(0.0, number=2, speed=20.0), on(1.0, number=3, speed=9e9)], 2),  # one's own
        ([trial(1, 100.0), trial(2, 5000.0, error="slow")], 1),
    ],
)
def test_the_best_has_the_cheapest_tokens(trials: list[Any], wanted: int | None) -> None:
    found = best(trials)
    assert (found["number"] if found else None) == wanted


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"ttft_p95_ms": 500.0}, ""),
        ({"ttft_p95_ms": 501.0}, "the first token took 501 ms; `max_ttft` is 500"),
        ({"context_length": None}, "a request of 4096 tokens, `min_context_length`, got no response"),
        ({"context_length": 3000}, "a request of 4096 tokens, `min_context_length`, got no response"),
        ({"context_length": 4000}, ""),  # the length of random words isn't exact
        ({"failed": 3, "error": "HTTP 503"}, "3 of 64 requests failed: HTTP 503"),
    ],
)
def test_a_limit_that_is_missed_is_named(changes: dict[str, Any], text: str) -> None:
    assert missed(GOAL, benchmark(**changes)) == text


@pytest.mark.parametrize(
    ("written", "profile", "seconds"),
    [
        (None, {}, DEFAULT_SECONDS),
        (7200, {"max_duration": 60}, 7200),
        (None, {"max_duration": 60}, 60),
        ("off", {}, DEFAULT_SECONDS),  # a trial always ends
        (-1, {"max_duration": 60}, DEFAULT_SECONDS),
    ],
)
def test_a_trial_always_has_an_end(written: Any, profile: dict[str, Any], seconds: int) -> None:
    assert seconds_of_a_trial(configuration(max_duration=written), profile) == seconds


def test_the_goal_is_read_of_the_configuration() -> None:
    found = Goal.of(configuration(base=None, model={"repo": "a/b", "name": "chat", "base": None}))
    assert (found.repo, found.base, found.served_name, found.input_tokens) == ("a/b", None, "chat", 64)
    assert Goal.of(configuration(input_tokens=None)).input_tokens == 1024

"""Decisions of a search, from its configuration and the trials so far: what is next, what is best, why it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.tables.cells import money

if TYPE_CHECKING:
    from chalicelib import contract

LOST_IN_A_ROW = 3  # trials without a measurement, after which a search gives up
DEFAULT_TOKENS = 1024
DEFAULT_SECONDS = 3600  # that a trial may take, unless `max_duration` says otherwise
CONTEXT_SHARE = 0.95  # of the context that the longest request must have: words aren't tokens
NEEDED = ("min_context_length", "max_ttft", "trials", "concurrency")


@dataclass(frozen=True)
class Goal:
    """What is searched for: the numbers of a `type: preset`."""

    trials: int
    concurrency: int
    min_context_length: int
    max_ttft: int
    input_tokens: int = DEFAULT_TOKENS
    output_tokens: int = DEFAULT_TOKENS
    shared_prefix_tokens: int = 0
    baseline: bool = True
    base: str | None = None
    repo: str | None = None
    served_name: str = ""

    @classmethod
    def of(cls, configuration: Mapping[str, Any]) -> Goal:
        base, repo, name = names_of(configuration)
        return cls(
            **{field: configuration[field] for field in NEEDED},
            input_tokens=configuration["input_tokens"] or DEFAULT_TOKENS,
            output_tokens=configuration["output_tokens"] or DEFAULT_TOKENS,
            shared_prefix_tokens=configuration["shared_prefix_tokens"] or 0,
            baseline=configuration["baseline"],
            base=base,
            repo=repo,
            served_name=name,
        )


def names_of(configuration: Mapping[str, Any]) -> tuple[str | None, str | None, str]:
    """The base model, the exact repository, and the name that clients request."""
    model = configuration["model"] or {}
    base, repo = model.get("base") or configuration["base"], model.get("repo") or configuration["repo"]
    return base, repo, model.get("name") or repo or base or ""


def seconds_of_a_trial(configuration: Mapping[str, Any], profile: Mapping[str, Any]) -> int:
    """How long one service may run; never without an end, so that nothing is left to pay for."""
    found = configuration["max_duration"] if configuration["max_duration"] is not None else profile.get("max_duration")
    return found if isinstance(found, int) and found > 0 else DEFAULT_SECONDS


def missed(goal: Goal, benchmark: contract.Benchmark) -> str:
    """The limit that a service misses; empty if it keeps to all of them."""
    if benchmark["failed"]:
        of_them = f"{benchmark['failed']} of {benchmark['requests']} requests failed"
        return f"{of_them}: {benchmark['error']}" if benchmark["error"] else of_them
    if (benchmark["context_length"] or 0) < goal.min_context_length * CONTEXT_SHARE:
        return f"a request of {goal.min_context_length} tokens, `min_context_length`, got no response"
    if benchmark["ttft_p95_ms"] > goal.max_ttft:
        return f"the first token took {benchmark['ttft_p95_ms']:.0f} ms; `max_ttft` is {goal.max_ttft}"
    return ""


def price_of_tokens(trial: contract.PresetTrial) -> float | None:
    """Dollars for a million tokens of output."""
    benchmark, machine = trial["benchmark"], trial["machine"]
    if not benchmark or not machine or benchmark["tokens_per_second"] <= 0:
        return None
    return machine["price"] / 3600 / benchmark["tokens_per_second"] * 1e6


def best(trials: Sequence[contract.PresetTrial]) -> contract.PresetTrial | None:
    """The one whose tokens cost least; of those that cost the same, as on one machine, the fastest, and the first."""

    def rank(trial: contract.PresetTrial) -> tuple[float, float, int]:
        price, benchmark = price_of_tokens(trial), trial["benchmark"]
        speed = benchmark["tokens_per_second"] if benchmark else 0.0
        return (float("inf") if price is None else price, -speed, trial["number"])

    return min((trial for trial in trials if trial["meets"]), key=rank, default=None)


@dataclass(frozen=True)
class Try:
    number: int
    baseline: bool


@dataclass(frozen=True)
class Finish:
    status: contract.PresetStatus
    reason: str
    best: int | None = None


def next_step(goal: Goal, trials: Sequence[contract.PresetTrial]) -> Try | Finish:
    if len(trials) >= goal.trials:
        return finish(trials, f"All {goal.trials} trials are done.")
    lost = trials[-LOST_IN_A_ROW:]
    if len(lost) == LOST_IN_A_ROW and not any(trial["benchmark"] for trial in lost):
        return finish(trials, f"{LOST_IN_A_ROW} trials in a row weren't measured; the last one: {lost[-1]['error']}.")
    return Try(len(trials) + 1, goal.baseline and not trials)


def finish(trials: Sequence[contract.PresetTrial], why: str, *, stopped: bool = False) -> Finish:
    """The end of a search for a reason. One that was stopped may have found something, too."""
    found = best(trials)
    if found is None:
        text = f"{why} None of {len(trials)} keeps to all limits." if trials else why
        return Finish("stopped" if stopped else "failed", text)
    assert found["benchmark"], "it meets the limits"
    cost = price_of_tokens(found)
    priced = f", {money(cost)} a million tokens" if cost else ""
    speed = f"{found['benchmark']['tokens_per_second']:.0f} tokens/s{priced}"
    return Finish(
        "stopped" if stopped else "done", f"{why} The best is trial {found['number']}: {speed}.", found["number"]
    )

"""The tables of `dstack preset`: presets, and the trials of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import age, money, status_cell
from cli.tables.metrics import BARS

if TYPE_CHECKING:
    from chalicelib import contract

PLAIN = ("NAME", "ID", "BASE", "CONSTRAINTS", "BENCHMARK", "STATUS", "SUBMITTED")
VERBOSE = (*PLAIN, "RESOURCES", "COST", "REASON")
TRIALS = ("#", "HYPOTHESIS", "RESOURCES", "TOKENS/S", "TTFT", "COST", "")


def presets_table(presets: Sequence[contract.Preset], now: float, verbose: bool = False) -> Table:
    titles = VERBOSE if verbose else PLAIN
    table = Table(titles, below=("REASON", "RESOURCES", "CONSTRAINTS"))
    for preset in presets:
        row = _row(preset, now)
        table.add(*(row[title] for title in titles))
    return table


def preset_table(preset: contract.Preset, now: float) -> Table:
    return presets_table([preset], now, verbose=True)


def _row(preset: contract.Preset, now: float) -> dict[str, str | Cell]:
    found = best_of(preset)
    return {
        "NAME": Cell(preset["name"] or "-", "bold"),
        "ID": preset["id"],
        "BASE": preset["base"] or preset["repo"] or "-",
        "CONSTRAINTS": constraints(preset),
        "BENCHMARK": course(preset["trials"], found) or "-",
        "STATUS": status_cell(preset["status"]),
        "SUBMITTED": age(preset["submitted_at"], now),
        "RESOURCES": found["machine"]["resources"] if found and found["machine"] else "-",
        "COST": money(preset["cost"]),
        "REASON": preset["reason"],
    }


def best_of(preset: contract.Preset) -> contract.PresetTrial | None:
    return next((trial for trial in preset["trials"] if trial["number"] == preset["best"]), None)


def constraints(preset: contract.Preset) -> str:
    """`context 8192, TTFT 500ms, 16 at a time`."""
    found = preset["configuration"]
    return f"context {found['min_context_length']}, TTFT {found['max_ttft']}ms, {found['concurrency']} at a time"


def course(trials: Sequence[contract.PresetTrial], found: contract.PresetTrial | None) -> str:
    """The speed of each trial as a bar, and that of the best in figures; a trial without a measurement is a dot."""
    speeds = [trial["benchmark"]["tokens_per_second"] if trial["benchmark"] else None for trial in trials]
    highest = max((speed for speed in speeds if speed), default=0.0)
    if not highest:
        return ""
    bars = "".join("·" if speed is None else BARS[round(speed / highest * (len(BARS) - 1))] for speed in speeds)
    return f"{bars} {found['benchmark']['tokens_per_second']:.0f} tok/s" if found and found["benchmark"] else bars


def trials_table(trials: Sequence[contract.PresetTrial]) -> Table:
    table = Table(TRIALS, right=frozenset({0, 3, 4}), below=("HYPOTHESIS", ""))
    for trial in trials:
        found, place = trial["benchmark"], trial["machine"]
        table.add(
            str(trial["number"]),
            trial["hypothesis"] or "-",
            place["resources"] if place else "-",
            f"{found['tokens_per_second']:.0f}" if found else "-",
            f"{found['ttft_p95_ms']:.0f}ms" if found else "-",
            money(trial["cost"]),
            Cell("meets all limits", "good")
            if trial["meets"]
            else Cell((trial["error"] or "").partition("\n")[0], "bad"),
        )
    return table

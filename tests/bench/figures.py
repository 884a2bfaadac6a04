"""The figures that are kept: their words, their budgets, what was recorded of them, and the table that shows them.

A fixed piece of work between the benches, the yardstick, tells how fast the machine was and how much it wavered: one
that is shared or hot takes more CPU seconds for the same work. What was recorded is read at the speed of now, from the
slowest to the fastest that both may have had, and a figure counts as better or worse only where all its samples lie
outside of that. So a quiet machine tells five percent, and a busy one what is beyond its own unrest.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.measure import cpu_ms
from tests.e2e.clouds.cloud import CLOUDS
from tests.harness.server import ROOT

RECORD = ROOT / "docs" / "bench.json"
WIDTH = 80
WIDENED = 0.05  # less than this is never a difference


@dataclass(frozen=True)
class Row:
    key: str  # a bench and a figure of its line
    label: str
    unit: str
    budget: float | None = None
    more: bool = False  # more of it is better
    timed: bool = True  # it follows the speed of the machine


ROWS = (
    Row("single.wall_s", "1 s task, submit to done", "s", 3),
    Row("burst-150.wall_s", "150 jobs on 150 hosts", "s", 4),
    Row("burst-1000.wall_s", "1,000 jobs on 150 hosts", "s", 14),
    Row("burst-150.cpu_per_job_ms", "CPU a job, of 150", "ms", 12),
    Row("burst-1000.cpu_per_job_ms", "CPU a job, of 1,000", "ms", 12),
    Row("gangs.real_8_s", "8 local nodes, submit to run", "s", 5),
    Row("gangs.wall_200_s", "200 simulated nodes, the same", "s", 15),
    Row("gangs.cpu_per_node_10_ms", "CPU a node, of 10", "ms"),
    Row("gangs.cpu_per_node_200_ms", "CPU a node, of 200", "ms"),
    Row("api.get_plan_cpu_ms", "get_plan, CPU", "ms", 5),
    Row("plans.get_plan_cpu_ms", "get_plan of 100,000 offers, CPU", "ms", 20),
    Row("api.submit_cpu_ms", "submit, CPU", "ms", 8),
    Row("listing.list_cpu_ms", "100 of 10,000 runs, CPU", "ms", 10),
    Row("people.authorise_cpu_ms", "authenticating a caller, CPU", "ms", 0.3),
    Row("people.projects_cpu_ms", "own of 1,000 projects, CPU", "ms", 10),
    Row("people.all_projects_cpu_ms", "all 1,000 projects, CPU", "ms"),
    Row("offers.match_cpu_ms", "50 of 100,000 offers, CPU", "ms", 15),
    Row("offers.group_cpu_ms", "all GPUs of 100,000 offers, CPU", "ms", 20),
    Row("offers.dearest_cpu_ms", "the 50 dearest, CPU", "ms", 20),
    Row("placement-alike.decisions_per_cpu_s", "jobs alike, placed a CPU second", "", 10_000, more=True),
    Row("placement-unlike.decisions_per_cpu_s", "jobs unlike, placed a CPU s", "", 10_000, more=True),
    Row("cold.import_app_cpu_ms", "import app, CPU", "ms", 300),
    Row("cold.first_answer_cpu_ms", "first answer (projects), CPU", "ms", 700),
    Row("cold.first_plan_cpu_ms", "first answer (a plan), CPU", "ms", 700),
    Row("cold.first_plan_uncompiled_cpu_ms", "the same without bytecode", "ms"),
    *(Row(f"effects.{name}_cpu_ms", f"first effect in {name}, CPU", "ms", 3000) for name in CLOUDS),
    Row("warm.projects_cpu_ms", "warm Lambda: projects, CPU", "ms", 10),
    Row("warm.get_plan_cpu_ms", "warm Lambda: get_plan, CPU", "ms", 10),
    Row("warm.apply_cpu_ms", "warm Lambda: apply, CPU", "ms", 10),
    Row("warm.runs_cpu_ms", "warm Lambda: 20 runs, CPU", "ms", 10),
    Row("warm.logs_cpu_ms", "warm Lambda: a log, CPU", "ms", 10),
    Row("cli.help_cpu_ms", "dstack --help, CPU", "ms", 200),
    Row("cli.ps_cpu_ms", "dstack ps, CPU", "ms", 350),
    Row("install.client_mb", "a client's files, with the SDK", "MB", 45, timed=False),
    Row("install.client_s", "a client's installation by pip", "s", 15),
    Row("sdk.import_cpu_ms", "SDK, its import over httpx, CPU", "ms", 60),
    Row("sdk.of_raw_percent", "its 1,000 submits, of raw HTTP", "%", 80, more=True, timed=False),
    Row("console.first_paint_ms", "console, first paint", "ms", 500),
    Row("console.data_ms", "console, sign-in to the list", "ms", 1000),
    Row("console.switch_ms", "console, to another page", "ms", 100),
    Row("console.change_seen_ms", "console, a new run is seen", "ms", 1000),
    Row("console.scroll_step_ms", "console, a step in 10,000 runs", "ms", 50),
    Row("console.scroll_window_work_ms", "its CPU, a window of runs on", "ms", 16),
    Row("console.log_window_work_ms", "a window of 100,000 lines on", "ms", 16),
    Row("console.heap_mb", "console, kept after 100 pages", "MB", 10, timed=False),
    Row("idle.core_percent", "idle server, of a core", "%", 0.2),
    Row("idle.rss_mb", "idle server, memory", "MB", 120, timed=False),
    Row("agent.idle_core_percent", "idle agent, of a core", "%", 0.3),
    Row("agent.flood_peak_mb", "agent, 100 MB of log in seconds", "MB", 30, timed=False),
    Row("agent.flood_supervisor_peak_mb", "the job's supervisor meanwhile", "MB", 30, timed=False),
    Row("crowd.core_percent", "1,000 idle hosts, of a core", "%", 5),
    Row("crowd.rss_mb", "1,000 idle hosts, memory", "MB", 250, timed=False),
    Row("kubernetes.first_line_s", "pod, submit to first line", "s", 3),
    Row("kubernetes.placed_cpu_ms", "CPU a pod, of 200, watched", "ms", 20),
    Row("kubernetes.idle_core_percent", "1,000 idle pods, of a core", "%", 1),
    Row("load.health_p99_ms", "health check under load, p99", "ms", 200, timed=False),
    Row("hostile.health_p50_ms", "health check under attack, p50", "ms", 50, timed=False),
    Row("hostile.health_most_ms", "the same, the longest", "ms", 200, timed=False),
    Row("load.start_p99_s", "task start under load, p99", "s", 3, timed=False),
    Row("load.peak_mb", "server under load, most memory", "MB", 300, timed=False),
    Row("live.stream_mb_s", "through one stream, a second", "MB", 100, more=True, timed=False),
    Row("live.line_s", "printed line to log stream", "s", 0.15, timed=False),
    Row("relay.added_p50_ms", "a request over a stream, more", "ms", 1),
    Row("relay.added_p99_ms", "the same, one in a hundred", "ms", 2),
    Row("relay.relay_32_per_s", "32 connections over streams", "/s", more=True),
    Row("relay.burst_300_s", "300 new ones at once, all", "s"),
    Row("relay.burst_lost", "of these, unanswered", "", 0, timed=False),
    Row("relay.back_after_cut_s", "a cut tunnel, until it is back", "s", 2),
    Row("attach.with_volume_cpu_ms", "run with a ready volume, CPU", "ms"),
    Row("attach.without_cpu_ms", "the same without a volume, CPU", "ms"),
    Row("scaling.pass_cpu_ms", "a pass of 100 replicas, CPU", "ms", 20),
    Row("scaling.step_cpu_ms", "the same, with a load step", "ms", 40),
    Row("scaling.scaler_us", "the scaler, 5 min of traffic", "µs", 100),
    Row("services.added_ms", "what the door adds, median", "ms", 0.6),
    Row("services.per_cpu_s", "requests a CPU s of it", "", 3_000, more=True),
    Row("services.stream_gap_added_ms", "300 streams, gap added, p99", "ms", 10, timed=False),
    Row("services.failed_under_kill", "failed at a killed replica", "", 0, timed=False),
    Row("services.failed_under_change", "failed while replicas change", "", 0, timed=False),
    Row("rollout.step_decided_s", "a load step, until decided", "s", 15, timed=False),
    Row("gateway.added_ms", "what a gateway adds, median", "ms", 0.2),
    Row("gateway.per_cpu_s", "requests a CPU s of its worker", "", 20_000, more=True),
    Row("gateway.failed_under_change", "failed while replicas change", "", 0, timed=False),
    Row("gateway.apply_ms", "100 services sent to it", "ms", 50),
    Row("gateway.rss_mb", "its memory with these", "MB", 80, timed=False),
    Row("units.run", "a run in AWS, write units", "", 48, timed=False),
    Row("units.erased", "its deletion and erasure, the same", "", timed=False),
    Row("units.sync", "a steady agent's call, the same", "", 0.2, timed=False),
    Row("limits.hosts", "hosts that a server carries", "", more=True, timed=False),
    Row("limits.hosts_slowest_ms", "dstack ps with these, p99", "ms", 200, timed=False),
    Row("limits.queued", "runs that wait in its queue", "", more=True, timed=False),
    Row("limits.queued_slowest_ms", "dstack ps with these, p99", "ms", 200, timed=False),
    Row("limits.requests_per_s", "lists of runs a second", "/s", more=True),
    Row("limits.requests_slowest_ms", "one of these, p99", "ms", 200, timed=False),
    Row("limits.followers", "followers of a log", "", more=True, timed=False),
    Row("limits.followers_slowest_ms", "a line to these, p99", "ms", 200, timed=False),
    Row("language.thousand_cpu_ms", "1,000 configurations read, CPU", "ms", 350),
    Row("language.worst_cpu_ms", "worst megabyte of YAML, CPU", "ms", 1000),
    Row("language.peak_mb", "the same, memory", "MB", 200, timed=False),
)


class Figure(NamedTuple):
    """What was measured: a median, the lowest and the highest sample."""

    median: float
    low: float
    high: float


class Measured(NamedTuple):
    """The figures of one run of all benches, and the yardstick's milliseconds beside them."""

    figures: Mapping[str, Figure]
    yardstick: Figure


def measured(lines: Iterable[Mapping[str, Any]], yardsticks: list[float]) -> Measured:
    """Every number of the benches' JSON lines, by bench and name."""
    found = {}
    for line in lines:
        for name, value in line.items():
            if isinstance(value, Mapping):
                found[f"{line['bench']}.{name}"] = Figure(value["median"], value["low"], value["high"])
            elif isinstance(value, int | float):
                found[f"{line['bench']}.{name}"] = Figure(value, value, value)
    return Measured(found, Figure(statistics.median(yardsticks), min(yardsticks), max(yardsticks)))


def yardstick_ms() -> float:
    """CPU milliseconds of a fixed piece of work like ours: JSON, dictionaries, calls, text."""
    return round(statistics.median(cpu_ms(_fixed_work)), 2)


def _fixed_work() -> int:
    found: dict[str, int] = {}
    for number in range(2000):
        text = json.dumps({"id": f"unit-{number}", "parts": list(range(8)), "name": "x" * (number % 40)})
        for name, value in json.loads(text).items():
            found[f"{name}/{value}"[:20]] = len(str(value))
    return sum(sorted(found.values()))


def change(row: Row, now: Measured, then: Measured) -> float:
    """How much better (above 0) or worse a figure became, in parts of what it was; 0 for what could be chance, and
    where there is nothing to compare."""
    here, past = now.figures.get(row.key), then.figures.get(row.key)
    if here is None or past is None or not past.median:
        return 0.0
    slower = (1.0, 1.0, 1.0) if not row.timed else _slower(now.yardstick, then.yardstick)
    low, usual, high = (1 / slower[2], 1 / slower[1], 1 / slower[0]) if row.more else slower
    if past.low * low * (1 - WIDENED) <= here.high and here.low <= past.high * high * (1 + WIDENED):
        return 0.0
    gain = here.median / (past.median * usual) - 1
    return gain if row.more else -gain


def _slower(now: Figure, then: Figure) -> tuple[float, float, float]:
    """How many times the CPU seconds of then the same work takes now: at least, usually, at most."""
    return now.low / then.high, now.median / then.median, now.high / then.low


def within_budget(row: Row, now: Figure) -> bool:
    """Is it within its budget?"""
    if row.budget is None:
        return True
    return now.median >= row.budget if row.more else now.median <= row.budget


# --- the table --------------------------------------------------------------------------------------------------------


def table(now: Measured, then: Measured) -> list[str]:
    lines = [f"  {'':<31}{'now':>10} {'low - high':>15} {'recorded':>10} {'budget':>9}"]
    for row in ROWS:
        here, past = now.figures.get(row.key), then.figures.get(row.key)
        if here is None:
            continue
        changed = change(row, now, then)
        mark = "!" if not within_budget(row, here) else "+" if changed > 0 else "-" if changed < 0 else " "
        recorded = "" if past is None else formatted(past.median, row.unit)
        budget = "" if row.budget is None else formatted(row.budget, row.unit)
        spread = f"{formatted(here.low)} - {formatted(here.high)}" if here.low < here.high else ""
        lines.append(
            f"{mark} {row.label:<31}{formatted(here.median, row.unit):>10} {spread:>15} {recorded:>10} {budget:>9}"
        )
    return [line.rstrip() for line in lines]


def formatted(value: float, unit: str = "") -> str:
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def summary(now: Measured, then: Measured) -> list[str]:
    """What is over its budget, what became better or worse than recorded by more than chance, and how steady both
    machines were."""
    over = [row.label for row in ROWS if row.key in now.figures and not within_budget(row, now.figures[row.key])]
    changes = {row.label: changed for row in ROWS if (changed := change(row, now, then))}
    better = [f"{label} {changed:+.0%}" for label, changed in changes.items() if changed > 0]
    worse = [f"{label} {changed:+.0%}" for label, changed in changes.items() if changed < 0]
    lines = [f"! over budget: {'; '.join(over) or 'nothing'}"]
    if not then.figures:
        return [*lines, "Nothing is recorded yet."]
    low, usual, high = _slower(now.yardstick, then.yardstick)
    return [
        *lines,
        f"+ better than recorded: {'; '.join(better) or 'nothing'}",
        f"- worse than recorded: {'; '.join(worse) or 'nothing'}",
        f"The same work takes {usual:.2f} times the CPU that it took when this was recorded ({low:.2f} to {high:.2f}); "
        "a difference counts where it is larger than that.",
    ]


# --- the record -------------------------------------------------------------------------------------------------------


def recorded(path: Path = RECORD) -> tuple[Measured, str]:
    """The record, and when and where it was made."""
    if not path.exists():
        return Measured({}, Figure(1.0, 1.0, 1.0)), ""
    record = json.loads(path.read_text())
    found = {key: Figure(**values) for key, values in record["figures"].items()}
    kind = "{cores} cores, {cpu}, Python {python}".format(**record["machine"])
    return Measured(found, Figure(**record["yardstick_ms"])), f"Recorded on {record['date']}: {kind}."


def record(now: Measured, path: Path = RECORD) -> None:
    figures = {row.key: now.figures[row.key]._asdict() for row in ROWS if row.key in now.figures}
    record_now = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "yardstick_ms": now.yardstick._asdict(),
        "figures": figures,
    }
    path.write_text(json.dumps(record_now, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Its kind, without anything that identifies it."""
    names = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    cpu = names[0] if names else platform.machine()
    return {"cores": os.cpu_count(), "cpu": cpu, "python": platform.python_version()}


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []

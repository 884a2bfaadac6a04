"""The table of figures: what counts as better or worse, what is kept, and how it reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.__main__ import BENCHES
from tests.bench.figures import (
    RECORD,
    ROWS,
    WIDTH,
    Figure,
    Measured,
    Row,
    change,
    measured,
    record,
    recorded,
    summary,
    table,
    within_budget,
)
from tests.harness.server import ROOT

CPU = Row("cold.import_app_cpu_ms", "import app, CPU", "ms", 300)
MEMORY = Row("idle.rss_mb", "idle server, memory", "MB", 120, timed=False)
RATE = Row("placement-alike.decisions_per_cpu_s", "placed a CPU second", "", 10_000, more=True)
STEADY = Figure(20, 20, 20)


def measured_as(yardstick: Figure = STEADY, **figures: float | Figure) -> Measured:
    rows = {"cpu": CPU, "memory": MEMORY, "rate": RATE}
    found = {rows[name].key: v if isinstance(v, Figure) else Figure(v, v, v) for name, v in figures.items()}
    return Measured(found, yardstick)


def test_only_what_lies_outside_of_all_samples_is_a_difference() -> None:
    assert change(CPU, measured_as(cpu=150), measured_as(cpu=300)) == 0.5
    assert change(CPU, measured_as(cpu=300), measured_as(cpu=150)) == -1
    assert change(CPU, measured_as(cpu=310), measured_as(cpu=300)) == 0
    assert change(CPU, measured_as(cpu=Figure(200, 140, 260)), measured_as(cpu=Figure(300, 250, 360))) == 0
    assert change(CPU, measured_as(cpu=300), measured_as()) == 0


def test_more_decisions_are_better() -> None:
    assert change(RATE, measured_as(rate=12_000), measured_as(rate=8_000)) == 0.5
    assert within_budget(RATE, Figure(12_000, 0, 0)) and not within_budget(RATE, Figure(9_000, 0, 0))
    assert within_budget(CPU, Figure(300, 0, 0)) and not within_budget(CPU, Figure(301, 0, 0))


def test_what_was_recorded_is_read_at_the_speed_of_now() -> None:
    slow = Figure(30, 30, 30)
    assert change(CPU, measured_as(slow, cpu=300), measured_as(cpu=200)) == 0
    assert change(RATE, measured_as(slow, rate=6_000), measured_as(rate=9_000)) == 0
    assert change(CPU, measured_as(slow, cpu=200), measured_as(cpu=200)) > 0
    assert change(MEMORY, measured_as(slow, memory=90), measured_as(memory=60)) == -0.5


def test_a_machine_that_wavers_tells_only_what_is_beyond_that() -> None:
    restless = Figure(20, 15, 30)
    assert change(CPU, measured_as(restless, cpu=280), measured_as(cpu=200)) == 0
    assert change(CPU, measured_as(restless, cpu=160), measured_as(cpu=200)) == 0
    assert (
        change(CPU, measured_as(restless, cpu=330), measured_as(cpu=200))
        < 0
        < change(CPU, measured_as(restless, cpu=100), measured_as(cpu=200))
    )


def test_lines_become_figures() -> None:
    lines: list[dict[str, Any]] = [
        {"bench": "cold", "import_app_cpu_ms": {"median": 200.0, "low": 190.0, "high": 230.0, "runs": 9}},
        {"bench": "placement-alike", "decisions_per_cpu_s": 11_000, "budget": "words"},
    ]
    assert measured(lines, [21.0, 20.0, 26.0]) == Measured(
        {CPU.key: Figure(200.0, 190.0, 230.0), RATE.key: Figure(11_000, 11_000, 11_000)}, Figure(21.0, 20.0, 26.0)
    )


def test_a_record_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    assert recorded(path)[0].figures == {}
    now = measured_as(Figure(20, 18, 23), cpu=Figure(200, 190, 240), rate=12_000)
    record(now, path)
    found, when = recorded(path)
    assert found == now
    assert re.fullmatch(r"Recorded on \d{4}-\d\d-\d\d: \d+ cores, .+, Python 3\.\d+\.\d+\.", when)


def test_the_table_fits_80_columns_and_marks_what_changed() -> None:
    wide = Measured({row.key: Figure(9_999.5, 9_000, 99_999) for row in ROWS}, STEADY)
    assert max(map(len, table(wide, wide))) <= WIDTH
    now, then = measured_as(cpu=150, memory=150, rate=12_000), measured_as(cpu=300, memory=60, rate=24_000)
    assert [line[0] for line in table(now, then)[1:]] == ["-", "+", "!"]  # in the order of the rows
    assert summary(now, then)[:3] == [
        "! over budget: idle server, memory",
        "+ better than recorded: import app, CPU +50%",
        "- worse than recorded: jobs alike, placed a CPU second -50%; idle server, memory -150%",
    ]
    assert summary(now, Measured({}, STEADY))[1:] == ["Nothing is recorded yet."]


def test_a_fresh_process_gives_its_first_answers(tmp_path: Path) -> None:
    """What `cold` runs: the one bench whose parts are put together by hand."""
    for call in ("prepare", "list", "plan"):
        command = [sys.executable, "-m", "tests.bench.first_answer", str(tmp_path), call]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout).keys() == {"import", "plane", "answer"}


def test_every_row_is_of_a_bench_that_is_run_and_the_record_has_no_other() -> None:
    benches = {row.key.partition(".")[0] for row in ROWS}
    assert {bench if bench in BENCHES else bench.partition("-")[0] for bench in benches} == set(BENCHES)
    record = json.loads(RECORD.read_text())
    assert record["figures"].keys() <= {row.key for row in ROWS}
    assert record.keys() == {"date", "machine", "yardstick_ms", "figures"}
    assert record["machine"].keys() == {"cores", "cpu", "python"}

"""The table of `operate/limits.md`: what `make bench` measured of one server. From its record, `bench.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE, RECORD = FOLDER / "operate" / "limits.md", FOLDER / "bench.json"
_PART = re.compile(r"(<!-- limits -->\n).*?(<!-- end -->)", re.DOTALL)
# What grew, its figure, and that of how slow it was then.
LOADS = (
    ("hosts that are joined, each with a call waiting", "hosts", "hosts_slowest_ms"),
    ("runs that wait for capacity", "queued", "queued_slowest_ms"),
    ("answers a second, each a list of the 20 newest runs", "requests_per_s", "requests_slowest_ms"),
    ("streams that follow one log, with 5 lines a second", "followers", "followers_slowest_ms"),
)


def page(record: Path = RECORD) -> str:
    """The page, with the table as it is now."""
    found = json.loads(record.read_text(encoding="utf-8"))
    return _PART.sub(lambda part: part[1] + _table(found) + part[2], PAGE.read_text(encoding="utf-8"))


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


def _table(record: dict[str, Any]) -> str:
    figures, machine = record["figures"], record["machine"]
    rows = [["load", "carried, at least", "one in a hundred took"], ["---"] * 3]
    for load, size, slowest in LOADS:
        most, took = (figures[f"limits.{name}"]["median"] for name in (size, slowest))
        rows.append([load, f"{_rounded(most):,}", f"{took:.0f} ms"])
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{table}\nMeasured on {record['date']}: {machine['cores']} cores, Python {machine['python']}.\n"


def _rounded(value: float) -> int:
    """To two digits, down: a figure of one afternoon isn't known better."""
    digits = 10 ** max(0, len(str(int(value))) - 2)
    return int(value) // digits * digits

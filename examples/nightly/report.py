"""Adds tonight's measurement to those of earlier nights, and compares: `report.py FOLDER`."""

from __future__ import annotations

import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path


def main(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "nights.db")) as base, base:
        base.execute("CREATE TABLE IF NOT EXISTS nights (at TEXT DEFAULT CURRENT_TIMESTAMP, value REAL)")
        base.execute("INSERT INTO nights (value) VALUES (?)", [measured()])
        count, mean = base.execute("SELECT count(*), avg(value) FROM nights").fetchone()
    print(f"night {count}: {mean:.3f} on average")


def measured() -> float:
    """Your measurement: of a model, a price, a queue."""
    return random.gauss(100, 10)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

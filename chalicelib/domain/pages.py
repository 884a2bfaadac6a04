"""The longest page of each list, which clients ask for to read all of it in few calls."""

from __future__ import annotations

RUNS = 100
EVENTS = 100
RECORDS = 1000  # of a log

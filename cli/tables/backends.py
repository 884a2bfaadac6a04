"""The table of `dstack backend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import age

if TYPE_CHECKING:
    from chalicelib import contract

SOURCES = {"api": "command", "file": "config.yml"}


def backends_table(backends: Sequence[contract.Backend], now: float) -> Table:
    table = Table(("BACKEND", "REGIONS", "FROM", "OFFERS", "ERROR"), below=("ERROR",))
    for one in backends:
        regions = ", ".join(one["config"].get("regions") or ()) or "all"
        taken = one.get("offers_taken_at")
        source = SOURCES.get(str(one["source"]), str(one["source"]))
        name = Cell(str(one["name"]), "bold")
        table.add(name, regions, source, age(taken, now) if taken else "-", one.get("offers_error") or "")
    return table

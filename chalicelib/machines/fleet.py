"""The fleet machine. A fleet that is deleted stays `terminating` until its last instance is gone."""

from __future__ import annotations

from chalicelib.machines.table import Machine

FLEET = Machine(
    noun="fleet",
    initial=("active",),
    terminal=frozenset({"terminated"}),
    table={
        "active": {"delete": "terminating"},
        "terminating": {"emptied": "terminated"},
    },
    timeouts={
        "active": "lives until deleted",
        "terminating": "its instances' termination, which is never given up",
    },
)

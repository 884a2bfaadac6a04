"""The fleet machine. A fleet that is deleted stays `terminating` until its last instance is gone."""

from __future__ import annotations

from chalicelib.domain.instants import MINUTE, Micros, every
from chalicelib.machines.table import StateMachine

CHECK_DELETING_EVERY: Micros = MINUTE

FLEET = StateMachine(
    noun="fleet",
    initial=("active",),
    terminal=frozenset({"terminated"}),
    table={
        "active": {"delete": "terminating"},
        "terminating": {"emptied": "terminated"},
    },
    timeouts={
        "active": "lives until deleted",
        "terminating": f"the end of its instances, which is never abandoned; checked {every(CHECK_DELETING_EVERY)}",
    },
)

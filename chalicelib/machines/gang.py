"""The gang machine. Only a sealed gang's places count; one that is undone gives all of them back, and its job, which
still waits, may try again.
"""

from __future__ import annotations

from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros, spoken
from chalicelib.machines.table import StateMachine

TO_SEAL: Micros = 30 * SECOND  # from its first claim
TO_MEET: Micros = 10 * MINUTE  # from the seal until every node has an address
LONGEST_WAIT: Micros = HOUR  # of an execution for one stage: longer than a gang, a machine or a job's start may take

GANG = StateMachine(
    noun="gang",
    initial=("gathering", "sealed"),
    terminal=frozenset({"released"}),
    table={
        "gathering": {"seal": "sealed", "undo": "undone"},
        "sealed": {"start": "starting", "release": "released", "undo": "undone"},
        "starting": {"release": "released", "undo": "undone"},
        "undone": {"gather": "gathering", "seal": "sealed"},
    },
    timeouts={
        "gathering": f"{spoken(TO_SEAL)} from its first claim, or until the first machine of a new cluster "
        "must be there; earlier if a run further ahead needs its places",
        "sealed": f"{spoken(TO_MEET)} for every node to have an address",
        "starting": "the deadlines of the nodes that start first",
        "undone": "passes continue until its places are released",
    },
)

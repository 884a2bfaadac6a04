"""The lease of a pair of servers: it says which of them decides.

Agents remember the highest epoch of a lease that they have heard of, and obey no server with a lower one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """Which turn at deciding this is."""

    lease: str  # the lease's id: epochs of another one can't be compared with it
    number: int  # one more for each server, or start of a server, that decides


@dataclass(frozen=True)
class Lease:
    """What is in the place that both servers reach."""

    id: str
    epoch: int
    owner: str  # the id of the data folder whose server decides
    name: str  # for people: the owner's machine
    lasts: float  # seconds for which the owner may decide after it began a renewal
    turn: int = 0  # how often it was renewed in this epoch
    moment: str = ""  # the owner's last copy, from which another can take over; empty: there is none yet
    rests: bool = False  # the owner has stopped, and its last copy has every commit

"""What is known of a live service beyond its spec: how many replicas it should have, and what its doors have seen.

A *door* is whatever takes a service's requests: the server itself, or a gateway's machine. Each door writes one record
a service, which nobody else writes, so that counting needs no lock and a lost door is one record that grows old.
"""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.noun import Noun, Value

BUCKET: Micros = 10 * SECOND  # what a door counts together
HISTORY: Micros = 5 * MINUTE  # the longest window: a door keeps no older bucket
STALE: Micros = 30 * SECOND  # after which a door that was busy when it last reported isn't believed any more
SERVER = "server"  # the door of a service without a gateway
ROUTER = "router/"  # with the id of its job, the door of a service's router to its workers: it counts nothing


def doors_of(gateway_id: str) -> str:
    """What the names of a gateway's doors begin with."""
    return f"gateway/{gateway_id}/"


def door_of(gateway_id: str, num: int) -> str:
    """The door that a replica of a gateway is."""
    return f"{doors_of(gateway_id)}{num}"


class Bucket(Value):
    """Ten seconds at one door. A request counts if a replica got it, or should have: refused ones don't, those that
    waited in vain do."""

    at: Micros  # when it begins, a multiple of `BUCKET`
    requests: int = 0
    busy: float = 0.0  # requests under way or held, on average


class Traffic(Noun):
    """What one door has seen of one service, and which replicas it has let go."""

    kind: ClassVar[str] = "traffic"

    run_id: str
    door: str
    at: Micros  # when it last reported
    quiet: bool = False  # nothing under way then: it needn't report again until somebody comes
    held: int = 0  # requests that wait for a replica right now
    buckets: tuple[Bucket, ...] = ()  # oldest first, none older than `HISTORY`
    prompt_tokens: int = 0  # what the model has read, by its server's own count, since the door began to count
    completion_tokens: int = 0  # what it has written
    let_go: tuple[str, ...] = ()  # jobs that get nothing new from this door, and have nothing under way there

    def place(self) -> keys.Place:
        return keys.Place(keys.traffic(self.run_id, self.door))


class Scale(Value):
    """How many replicas a group should have, and when that last changed."""

    group: str
    desired: int
    at: Micros | None = None  # of the last change by the scaler; None: it hasn't changed yet
    why: str = ""  # in words, for `ps -v`; a fixed number needs none
    wanted: int | None = None  # what its traffic asks for, if that has to wait for a delay
    panic_until: Micros | None = None  # no scaling down before, after a sudden rise
    stale: bool = False  # a door is silent, so the count stays

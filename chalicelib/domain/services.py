"""The state of a live service beyond its spec: the desired number of replicas, and the traffic at its doors.

A *door* takes a service's requests: the server itself, or a gateway's machine. Each door writes one record for each
service, and nobody else writes it, so that counting needs no lock and a lost door is just a record that isn't updated.
"""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.latencies import Histogram
from chalicelib.domain.noun import Noun, Value

BUCKET: Micros = 10 * SECOND  # the resolution of a door's counts
STEP: Micros = 30 * SECOND  # the resolution of how long answers took: coarser, so that a record is a kilobyte
HISTORY: Micros = 5 * MINUTE  # the longest window: a door keeps no older bucket
STALE: Micros = 30 * SECOND  # a door that was busy at its last report is distrusted after this time
SERVER = "server"  # the door of a service without a gateway
ROUTER = "router/"  # with the id of its job, the door of a service's router to its workers: it counts nothing


def doors_of(gateway_id: str) -> str:
    """The prefix of the names of a gateway's doors."""
    return f"gateway/{gateway_id}/"


def door_of(gateway_id: str, num: int) -> str:
    """The name of the door of a gateway's replica."""
    return f"{doors_of(gateway_id)}{num}"


class Bucket(Value):
    """Ten seconds at one door. Requests count if a replica got them, or should have: those that waited in vain count,
    refused ones don't."""

    at: Micros  # when it begins, a multiple of `BUCKET`
    requests: int = 0
    busy: float = 0.0  # requests under way or held, on average


class Answers(Value):
    """The requests that replicas answered in half a minute at one door, by how long they took since they had come
    there: until the first byte of the answer's body, and until its last. A request is in the step in which that byte
    came. It may have waited for a replica. A WebSocket isn't an answer."""

    at: Micros  # when the step begins, a multiple of `STEP`
    first_byte: Histogram = ()
    whole: Histogram = ()


class Durations(Value):
    """All requests since the door began to count, by how long they took."""

    histogram: Histogram = ()
    seconds: float = 0.0  # in total


class Traffic(Noun):
    """One service's traffic at one door, and the replicas that the door has released."""

    kind: ClassVar[str] = "traffic"

    run_id: str
    door: str
    at: Micros  # when it last reported
    quiet: bool = False  # nothing was under way then, so it needn't report again before the next request
    held: int = 0  # requests that wait for a replica right now
    buckets: tuple[Bucket, ...] = ()  # oldest first, none older than `HISTORY`
    # Beside the buckets, not in them: an earlier release drops what it doesn't know of a record, but not of a bucket.
    answers: tuple[Answers, ...] = ()  # oldest first; doors of earlier releases report none
    first_byte: Durations = Durations()
    whole: Durations = Durations()
    prompt_tokens: int = 0  # read by the model, as its server counts, since the door began to count
    completion_tokens: int = 0  # written by the model
    let_go: tuple[str, ...] = ()  # ids of released jobs: they get no new requests here, and have none under way

    def place(self) -> keys.Place:
        return keys.Place(keys.traffic(self.run_id, self.door))


class Scale(Value):
    """How many replicas a group should have, and when that last changed."""

    group: str
    desired: int
    at: Micros | None = None  # of the last change by the scaler; None: it hasn't changed yet
    why: str = ""  # for `ps -v`; empty for a fixed number
    wanted: int | None = None  # the number that its traffic calls for, if that has to wait for a delay
    panic_until: Micros | None = None  # after a sudden rise: no scaling down until then
    stale: bool = False  # a door is silent, so the count stays

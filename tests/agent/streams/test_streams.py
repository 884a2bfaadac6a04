"""The agent's streams before they are connections: how jobs share the places and the threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from chalicelib.agent.streams.streams import DIALS_OF_A_JOB, MOST, AgentStreams, Unreachable

PATIENCE = 120.0


@dataclass
class Targets:
    """Each opens once it may, and is then found to be out of reach, as is the server."""

    may: dict[str, threading.Event] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def open(self, task: str, order: dict[str, Any]) -> Any:
        with self.changed:
            self.calls[task] += 1
            self.changed.notify_all()
        if task in self.may:
            assert self.may[task].wait(PATIENCE)
        raise Unreachable("no")

    def note(self, text: str) -> None:
        with self.changed:
            self.notes.append(text)
            self.changed.notify_all()

    def wait(self, until: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(until, PATIENCE), (self.calls, self.notes)

    def refused(self) -> int:
        return sum(": refused, " in note for note in self.notes)


@pytest.fixture
def targets() -> Iterator[Targets]:
    made = Targets(may={"slow": threading.Event()})
    yield made
    made.may["slow"].set()


@pytest.fixture
def streams(targets: Targets) -> Iterator[AgentStreams]:
    made = AgentStreams(lambda: "http://127.0.0.1:0", targets.note)
    made.serve("port", targets.open)
    yield made
    targets.may["slow"].set()
    made._threads.shutdown()  # other tests count threads
    made.loop.close()


def order(name: str, task: str) -> dict[str, str]:
    return {"id": name, "ticket": "t", "task": task, "target": "port:1"}


def test_a_slow_target_holds_up_its_own_job_only(streams: AgentStreams, targets: Targets) -> None:
    for number in range(100):
        streams.dial(order(f"slow-{number}", "slow"))
    streams.dial(order("other", "other"))
    targets.wait(lambda: targets.calls["other"])
    targets.wait(lambda: targets.calls["slow"] == DIALS_OF_A_JOB)
    targets.may["slow"].set()
    targets.wait(lambda: len(targets.notes) == 101)
    assert targets.calls["slow"] == 100, "they had their turn"


@pytest.mark.slow
def test_a_job_leaves_places_to_others(streams: AgentStreams, targets: Targets) -> None:
    for number in range(MOST):
        streams.dial(order(f"slow-{number}", "slow"))
    taken = MOST - targets.refused()
    assert 200 <= taken < MOST
    for job in range(20):
        before = targets.refused()
        streams.dial(order(f"other-{job}", f"other-{job}"))
        assert targets.refused() == before, "each of these has none yet"
    targets.may["slow"].set()
    targets.wait(lambda: len(targets.notes) == MOST + 20)
    streams.dial(order("late", "slow"))
    targets.wait(lambda: targets.calls["slow"] == taken + 1)


def test_an_order_that_is_told_twice_is_dialled_once(streams: AgentStreams, targets: Targets) -> None:
    for _ in range(3):
        streams.dial(order("one", "slow"))
    targets.wait(lambda: targets.calls["slow"])
    targets.may["slow"].set()
    targets.wait(lambda: targets.notes)
    assert (targets.calls["slow"], len(targets.notes)) == (1, 1)

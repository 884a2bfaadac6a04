"""Output on its way to the server's object store: announced, put, reported; and nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.agent.program.chunks import Chunk
from chalicelib.agent.program.commands import PutLog, Trim
from chalicelib.agent.program.session import PUT_TRIES, AgentSession
from chalicelib.store.log_pages import unpacked
from tests.agent.program.test_session import Logs, greeted, message, report, session

QUIET: dict[str, Any] = {"next_sync_in": 1000, "log_put": 100}
OFFER = {"task": "t", "url": "http://store/t", "headers": {"Content-Length": "9"}}


class Side:
    """An agent with one task, and its server."""

    def __init__(self, size: int = 500) -> None:
        self.logs, self.now = Logs(), 0.0
        self.agent: AgentSession = greeted(session(self.logs), **QUIET)
        self.agent.task_changed(report())
        self.agent.answered(message(self.agent, 0), QUIET, 0)
        self.write("t", size)

    def write(self, task: str, size: int) -> None:
        self.logs.data[task] = self.logs.data.get(task, b"") + b"x" * size
        self.agent.log_grew(task, len(self.logs.data[task]), self.now)

    def next_message(self, seconds: float = 1.0) -> Any:
        self.now += seconds
        return message(self.agent, self.now)

    def orders_after(self, sent: Any, **answer: Any) -> list[Any]:
        return self.agent.answered(sent, {**QUIET, **answer}, self.now)

    def announced(self) -> PutLog:
        (order,) = self.orders_after(self.next_message(), uploads=[OFFER])
        assert isinstance(order, PutLog)
        return order


def test_much_output_is_announced_put_and_reported() -> None:
    side = Side()
    sent = side.next_message()
    (chunk,) = sent.body["chunks"]
    assert sent.body["logs"] == [] and (chunk["task"], chunk["offset"], chunk["end"], chunk["stored"]) == (
        "t",
        0,
        500,
        False,
    )
    (order,) = side.orders_after(sent, uploads=[OFFER])
    assert (order.url, order.headers) == (OFFER["url"], OFFER["headers"])
    assert b"".join(data for _, _, data in unpacked(order.chunk.payload, 0)) == b"x" * 500
    assert chunk["size"] == len(order.chunk.payload)
    side.agent.put_done(order.chunk, "", side.now)
    sent = side.next_message()
    assert sent.body["chunks"] == [{**chunk, "stored": True}]
    assert side.orders_after(sent, logs=[{"task": "t", "offset": 500}]) == [Trim("t", 500)]
    side.write("t", 3)
    assert side.next_message().body["logs"][0]["offset"] == 500


def test_little_output_goes_in_a_message() -> None:
    side = Side(size=100)
    sent = side.next_message()
    assert sent.body["logs"][0]["offset"] == 0 and "chunks" not in sent.body


def test_other_tasks_output_isnt_held_up() -> None:
    side = Side()
    side.announced()
    side.write("t", 5)
    side.agent.task_changed(report("u"))
    side.write("u", 5)
    sent = side.next_message()
    assert [chunk["task"] for chunk in sent.body["logs"]] == ["u"] and "chunks" not in sent.body


def test_what_couldnt_be_put_is_announced_again_and_after_some_tries_sent_in_messages() -> None:
    side = Side()
    for _ in range(PUT_TRIES):
        side.agent.put_done(side.announced().chunk, "timed out", side.now)
        side.now += 60
    side.orders_after(side.next_message(), logs=[{"task": "t", "offset": 0}])
    sent = side.next_message(60)
    assert "chunks" not in sent.body and sent.body["logs"][0]["offset"] == 0


def test_a_server_that_has_it_already_says_where_the_log_goes_on() -> None:
    side = Side()
    side.orders_after(side.next_message(), logs=[{"task": "t", "offset": 450}])
    sent = side.next_message(5)
    assert sent.body["logs"][0]["offset"] == 450


@pytest.mark.parametrize("reported", [False, True])
def test_a_lost_answer_costs_another_announcement(reported: bool) -> None:
    side = Side()
    if reported:
        side.agent.put_done(side.announced().chunk, "", side.now)
    lost = side.next_message()
    side.agent.failed(lost, "network", side.now)
    sent = side.next_message(30)
    assert [(chunk["offset"], chunk["stored"]) for chunk in sent.body["chunks"]] == [(0, False)]


def test_a_task_that_is_removed_meanwhile_takes_its_output_with_it() -> None:
    side = Side()
    order = side.announced()
    side.agent.task_removed("t")
    side.agent.put_done(order.chunk, "", side.now)
    side.agent.put_done(order.chunk, "too late", side.now)
    assert isinstance(side.agent.next(side.now), float)


def test_a_server_that_doesnt_know_the_task_is_asked_again_later() -> None:
    side = Side()
    side.orders_after(side.next_message())
    assert isinstance(side.agent.next(side.now + 30), float)
    assert side.next_message(61).body["chunks"][0]["offset"] == 0


def test_a_chunk_says_when_its_lines_were_written() -> None:
    fields = Chunk("t", 7, [(5, b"one\n"), (3, b"two\n")]).fields()
    assert (fields["offset"], fields["end"], fields["low"], fields["high"]) == (7, 15, 3, 5)

"""Whatever a machine has to tell, each of its messages is one that the server takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib.agent.kernel import limits
from chalicelib.agent.program.commands import Skip, Start
from chalicelib.agent.program.session import Message
from chalicelib.domain.bounds import MOST_BLOCKS
from chalicelib.errors import Invalid
from chalicelib.planning.runs import agent_reports
from chalicelib.usecases import agent_message as server
from tests.agent.program.test_session import Logs, greeted, message, report, session

NOW = 1_790_000_000_000_000
FACTS = {"cpus": 8, "memory_mib": 1, "disk_mib": 1, "arch": "x86"}


class TinyRecords(Logs):
    """As a program leaves them that writes byte by byte."""

    def read(self, task: str, offset: int, limit: int) -> tuple[int, list[tuple[int, bytes]]]:
        count = min(limit, limits.RECORDS_A_READ, len(self.data[task]) - offset)
        return offset, [(NOW, b"x")] * count


def taken(sent: Message) -> server.AgentMessage:
    """As the server reads it; raises if it doesn't take it."""
    body = json.dumps(sent.body, separators=(",", ":")).encode()
    read = server.read_message(body)
    for chunk in read.logs:
        chunk.decoded()
    return read


def test_a_size_is_that_of_what_is_sent() -> None:
    assert limits.size_of({"a": [1, 2], "b": "ä"}) == len('{"a":[1,2],"b":"\\u00e4"}')


def test_the_limits_agree_with_those_of_reads_of_texts_and_of_machines() -> None:
    assert limits.RECORDS_MOST >= 2 * limits.RECORDS_A_READ
    assert limits.TEXT_MOST["message"] == limits.TEXT_MOST["held_by"] == agent_reports.MAX_TEXT
    assert limits.TASKS_MOST >= 2 * MOST_BLOCKS, "as many as `--local-blocks` allows, while as many others are removed"


@pytest.mark.parametrize("count", [301, pytest.param(limits.TASKS_MOST, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "text",
    ["", "x" * 240_000, "\U0001f600" * 240_000, "\0\udcff\x1b" * 80_000],
    ids=["nothing", "plain", "wide", "no text"],
)
def test_many_tasks_with_much_to_say_fit_one_message(count: int, text: str) -> None:
    pull = {"downloaded_bytes": 10**12, "extracted_bytes": 10**12, "total_bytes": 10**12, "is_total_bytes_final": True}
    agent = session()
    for number in range(count):
        reports = {
            "at": NOW,
            "reason": "creating_container_error",
            "exit_status": 255,
            "pull": pull,
            "message": text,
            "held_by": text,
        }
        agent.task_changed(report(f"6628ef34-2e9a-4af5-aab4-{number:012d}", "exited", **reports, username=text[:400]))
    read = taken(message(agent, 0))
    assert len({task.id for task in read.tasks}) == count and {task.state for task in read.tasks} == {"exited"}


def test_ten_long_messages_are_cut_to_what_the_server_keeps() -> None:
    agent = session()
    for number in range(10):
        agent.task_changed(report(str(number), message="é" * 240_000, working_dir="/" + "d" * 5000))
    (first, *_) = taken(message(agent, 0)).tasks
    assert first.message == "é" * 999 + "…" and first.working_dir == "/" + "d" * 4094 + "…"


@pytest.mark.slow
def test_tiny_records_of_many_tasks_come_in_many_messages() -> None:
    logs = TinyRecords()
    agent = greeted(session(logs))
    size = 3 * limits.RECORDS_A_READ
    for name in map(str, range(20)):
        logs.data[name] = b"x" * size
        agent.task_changed(report(name))
        agent.log_grew(name, size, 0)
    held = dict.fromkeys(logs.data, 0)
    now = 0.0
    while any(end < size for end in held.values()):
        now += 1
        sent = message(agent, now)
        for chunk in taken(sent).logs:
            assert chunk.offset == held[chunk.task]
            held[chunk.task] += len(chunk.records)
        agent.answered(sent, {"logs": [{"task": task, "offset": held[task]} for task in sent.logs]}, now)
    assert now < 100


@pytest.mark.slow
def test_metrics_of_many_gpus_come_in_several_messages() -> None:
    agent = greeted(session())
    card = {"memory_usage_bytes": 10**11, "util_percent": 99.5}
    agent.measured([{"task": "t", "at": at, "gpus": [card] * 100} for at in range(400)])
    seen: list[int] = []
    for now in range(1, 20):
        sent = message(agent, now)
        points = taken(sent).metrics
        assert all(len(point.gpus) == limits.GPUS_MOST for point in points)
        seen += [point.at for point in points]
        agent.answered(sent, {}, now)
        agent.facts_changed({**FACTS, "cpus": now})
    assert seen == list(range(100, 400)), "the newest that were kept, in order"


def test_as_many_samples_are_sent_as_there_is_room_for() -> None:
    samples = [{"task": "t", "at": at} for at in range(10, 13)]
    each = limits.size_of(samples[0]) + 1  # and a comma
    assert [limits.count_fitting(samples, room) for room in (0, each - 1, each, 3 * each - 1, 3 * each)] == [
        0,
        0,
        1,
        2,
        3,
    ]


def test_a_machine_full_of_tasks_takes_another_once_there_is_room() -> None:
    agent = session()
    for number in range(limits.TASKS_MOST):
        agent.task_changed(report(str(number), "exited"))
    new = {"tasks": [{"id": "new", "want": "run", "spec": {"id": "new"}}, {"id": "gone", "want": "abort"}]}
    assert agent.answered(message(agent, 0), new, 0) == [] and len(agent.tasks()) == limits.TASKS_MOST
    agent.task_removed("0")
    agent.facts_changed(FACTS)
    assert agent.answered(message(agent, 1), new, 1) == [Start("new", {"id": "new"})]


def test_what_would_never_be_taken_is_not_sent_for_ever() -> None:
    """The server's rules may be stricter than the agent knows. All but the states of the tasks is spared then."""
    logs = Logs()
    logs.data["t"] = b"0123456789"
    agent = greeted(session(logs))
    agent.task_changed(report(message="odd", username="odd", at=NOW))
    agent.log_grew("t", 10, 0)
    agent.measured([{"task": "t", "at": -1}])
    agent.facts_changed({"cpus": -1})
    sent = message(agent, 1)
    with pytest.raises(Invalid):
        taken(sent)
    assert agent.failed(sent, "unacceptable", 1) == []
    again = message(agent, 2)
    assert again.body["tasks"] == [{"id": "t", "state": "running", "at": NOW, "log_end": 10}]
    assert again.body["metrics"] == [] and "facts" not in again.body
    taken(again)
    assert again.body["logs"] == sent.body["logs"], (
        "the output is the dearest: it goes only if the rest wasn't to blame"
    )
    assert agent.failed(again, "unacceptable", 2) == [Skip("t", 0, 10)]
    agent.log_shrank("t", 0, 2)  # as the program says once it left them out
    last = message(agent, 4)
    assert last.body["tasks"] == [{"id": "t", "state": "running", "at": NOW, "log_end": 0}] and not last.body["logs"]
    agent.answered(last, {}, 4)
    agent.task_changed(report(message="better"))
    assert message(agent, 5).body["tasks"][0]["message"] == "better"


def test_a_host_whose_name_is_no_text_joins_all_the_same() -> None:
    agent = session()
    agent.facts_changed(
        {**FACTS, "hostname": "box\udcff", "gpus": [{"name": "\udcff", "memory_mib": 1, "vendor": "x"}]}
    )
    facts = taken(message(agent, 0)).facts
    assert facts is not None and (facts.hostname, facts.gpus[0].name) == ("box?", "?")


def test_a_server_that_is_away_costs_nothing_of_a_message() -> None:
    logs = Logs()
    logs.data["t"] = b"0123456789"
    agent = greeted(session(logs))
    agent.task_changed(report(message="odd"))
    agent.log_grew("t", 10, 0)
    sent = message(agent, 1)
    assert agent.failed(sent, "network", 1) == []
    body: dict[str, Any] = message(agent, 3).body
    assert body["logs"] == sent.body["logs"] and body["tasks"] == sent.body["tasks"]


def test_a_text_is_cut_to_what_there_is_room_for() -> None:
    assert limits.cut("short", 100) == "short"
    cut = limits.cut("ä" * 100, 62)
    assert cut == "ä" * 10 and limits.size_of(cut) <= 62
    assert limits.cut("x", 1) == ""

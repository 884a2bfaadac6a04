"""The limits of an agent's message: the last one that is accepted, and the first that isn't."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from chalicelib.agent.kernel.limits import MESSAGE_BYTES, METRICS_MOST, TASKS_MOST
from chalicelib.errors import Invalid
from chalicelib.usecases.agent_message import AgentMessage, read_message

HEAD = {"v": 1, "instance": "i", "boot": "b", "seq": 0}
FACTS = {"cpus": 1, "memory_mib": 1, "disk_mib": 1, "arch": "x86"}
TASK = {"id": "t", "state": "running"}
LOG = {"task": "t", "offset": 0, "records": []}
POINT = {"task": "t", "at": 0}


def read(**parts: Any) -> AgentMessage:
    return read_message({**HEAD, **parts})


def test_the_shortest_message() -> None:
    found = read()
    assert (found.agent, found.facts, found.wait) == ("", None, 0)
    assert found.tasks == found.logs == found.metrics == []
    assert read_message(orjson.dumps(HEAD)) == found


@pytest.mark.parametrize(
    ("parts", "more"),
    [
        ({"tasks": [TASK] * TASKS_MOST}, {"tasks": [TASK] * (TASKS_MOST + 1)}),
        ({"logs": [LOG] * TASKS_MOST}, {"logs": [LOG] * (TASKS_MOST + 1)}),
        ({"metrics": [POINT] * METRICS_MOST}, {"metrics": [POINT] * (METRICS_MOST + 1)}),
        ({"logs": [{**LOG, "records": [[0, ""]] * 20_000}]}, {"logs": [{**LOG, "records": [[0, ""]] * 20_001}]}),
        ({"metrics": [{**POINT, "gpus": [{}] * 64}]}, {"metrics": [{**POINT, "gpus": [{}] * 65}]}),
        (
            {"metrics": [{**POINT, "gpus": [{"util_percent": 100}, {"util_percent": 0}]}]},
            {"metrics": [{**POINT, "gpus": [{"util_percent": 100.1}]}]},
        ),
        ({"metrics": [POINT]}, {"metrics": [{**POINT, "gpus": [{"util_percent": -0.1}]}]}),
        ({"boot": "b" * 100}, {"boot": "b" * 101}),
        ({"boot": "b"}, {"boot": ""}),
        ({"wait": 600}, {"wait": 600.1}),
        ({"wait": 0}, {"wait": -0.1}),
        ({"seq": 0}, {"seq": -1}),
    ],
)
def test_what_is_let_in_and_what_is_one_too_many(parts: dict[str, Any], more: dict[str, Any]) -> None:
    read(**parts)
    with pytest.raises(Invalid) as caught:
        read(**more)
    assert caught.value.problems[0].path.partition(".")[0] == next(iter(more))


def test_a_message_may_be_so_long_and_no_longer() -> None:
    message = orjson.dumps(HEAD)
    read_message(message.ljust(MESSAGE_BYTES))
    with pytest.raises(Invalid, match=f"has {MESSAGE_BYTES + 1} bytes; the limit is {MESSAGE_BYTES}"):
        read_message(message.ljust(MESSAGE_BYTES + 1))


def test_another_protocol_is_named() -> None:
    with pytest.raises(Invalid, match="speaks protocol 2, this control plane 1"):
        read(v=2)


def test_facts_of_a_newer_agent_are_read_as_far_as_they_are_known() -> None:
    gpu = {"name": "A100", "memory_mib": 1, "vendor": "nvidia"}
    facts = read(facts={**FACTS, "tpus": 4, "gpus": [{**gpu, "colour": "red"}]}).facts
    assert facts is not None and facts.gpus[0].name == "A100" and facts.cpus == 1
    for wrong in (3, {**FACTS, "gpus": 3}, {**FACTS, "gpus": [3]}):
        with pytest.raises(Invalid):
            read(facts=wrong)


def test_output_is_base64() -> None:
    text = base64.b64encode(b"\x00\xff").decode()
    (log,) = read(logs=[{**LOG, "records": [[7, text]]}]).logs
    assert log.decoded() == [(7, b"\x00\xff")]
    (log,) = read(logs=[{**LOG, "records": [[7, "a!"]]}]).logs
    with pytest.raises(Invalid) as caught:
        log.decoded()
    assert caught.value.problems[0].path == "logs.records"

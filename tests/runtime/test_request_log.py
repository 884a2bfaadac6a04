"""The log's line for a request: what is in it, and what isn't."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chalicelib.api.dispatch import Reply, RequestHead
from chalicelib.engine import log_context
from chalicelib.engine.counters import Counters
from chalicelib.engine.measures import Measures
from chalicelib.runtime.asgi import SMALL, AsgiBridge
from chalicelib.runtime.request_log import RequestLog, RequestMeter
from chalicelib.runtime.request_log import log as requests
from chalicelib.runtime.server_log import JsonLines
from tests.runtime.test_asgi import RUNS, TOKEN, Client, FakeApp, one

ACCESS_TOKEN = f"dstack_{'a' * 40}.{'b' * 32}.{'c' * 43}"


class Written(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(JsonLines().format(record)))


@contextmanager
def written(level: int) -> Iterator[list[dict[str, Any]]]:
    handler, before = Written(), requests.level
    requests.addHandler(handler)
    requests.setLevel(level)
    try:
        yield handler.lines
    finally:
        requests.removeHandler(handler)
        requests.setLevel(before)


class Known(FakeApp):
    """Dispatch that knows its caller, and logs something."""

    def serve(self, head: RequestHead) -> Reply:
        log_context.note(user="ada")
        requests.warning("something happens")
        return super().serve(head)

    def logging_bridge(self, level: int = logging.INFO) -> AsgiBridge:
        made, times = self.bridge(), iter([1.0, 1.25, 2.0, 2.5])
        made._requests = RequestLog(level, iter(["r1", "r2"]).__next__, clock=lambda: next(times))
        return made


def ask(path: str = RUNS, client: Client | None = None, *, level: int = logging.INFO, **more: Any) -> Client:
    client = client or Client()
    asyncio.run(one(Known().logging_bridge(level), path, client, **more))
    return client


def test_a_request_has_one_line_that_says_who_asked_and_what_came_of_it() -> None:
    with written(logging.INFO) as lines:
        client = ask("/api/project/main/runs/get")
    during, line = lines
    assert {name: line[name] for name in line if name not in ("time", "logger")} == {
        "level": "info",
        "message": "POST /api/project/{project_name}/runs/get 200 250.0 ms 2 bytes by ada",
        "request_id": "r1",
        "user": "ada",
        "client": None,
        "method": "POST",
        "route": "/api/project/{project_name}/runs/get",
        "project": "main",
        "ms": 250.0,
        "status": 200,
        "bytes": 2,
    }
    assert client.headers[b"x-request-id"] == b"r1" and client.answer == b"{}"
    assert during["message"] == "something happens" and during["request_id"] == "r1"


def test_a_refused_request_has_a_line_without_a_user() -> None:
    with written(logging.INFO) as lines:
        ask(headers={"authorization": "Bearer forged"}, client=Client(b"x" * 2**20))
    (line,) = lines
    assert (line["user"], line["status"], line["route"]) == (None, 403, RUNS)


def test_a_path_that_isnt_there_isnt_repeated() -> None:
    with written(logging.DEBUG) as lines:
        ask(f"/api/{ACCESS_TOKEN}", query=b"token=abc", headers=TOKEN)
    (line,) = lines
    assert line["route"] is None and line["status"] == 404 and "abc" not in str(line) and "aaa" not in str(line)


class Leaves(Client):
    async def receive(self) -> dict[str, Any]:
        return {"type": "http.disconnect"}


def test_a_client_that_left_has_a_line_without_a_status() -> None:
    with written(logging.INFO) as lines:
        ask(client=Leaves(), size=10)
    (line,) = lines
    assert line["status"] is None and line["message"].startswith(f"POST {RUNS} left ")


@pytest.mark.parametrize(("level", "count"), [(logging.DEBUG, 1), (logging.INFO, 2)])
def test_the_line_has_the_level_that_one_wants(level: int, count: int) -> None:
    with written(logging.INFO) as lines:
        client = ask(level=level)
    assert len(lines) == count and client.answer == b"{}"
    assert (b"x-request-id" in client.headers) is (count == 2)


def test_what_looks_like_a_token_is_hidden() -> None:
    try:
        raise ValueError(f"Authorization: Bearer own-token\n{ACCESS_TOKEN}")
    except ValueError as error:
        found = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "it sent bearer %s \ud800", ("abc-def",), found)
    line = JsonLines().format(record)
    assert json.loads(line)["message"] == "it sent bearer [hidden] ?"
    assert "Bearer [hidden]" in line and "own-token" not in line and "aaa" not in line and "\n" not in line


@pytest.mark.parametrize(
    ("path", "headers", "size", "kind"),
    [
        ("/api/project/main/runs/get", {}, 0, "api"),
        ("/api/project/main/runs/get", {}, SMALL + 1, "transfer"),
        ("/api/v1/projects/main/runs", {"prefer": "wait=5"}, 0, "held"),
        ("/agent/sync", {}, 0, "held"),
        ("/agent/files/a", {}, 0, "agents"),
        ("/nowhere", {}, 0, "other"),
    ],
)
def test_requests_are_measured_by_class_whether_they_are_logged_or_not(
    path: str, headers: dict[str, str], size: int, kind: str
) -> None:
    heard: list[tuple[str, int | None]] = []
    made = Known().logging_bridge()
    made._requests = RequestLog(
        logging.DEBUG, lambda: "r", served=lambda route, kind, status, seconds: heard.append((kind, status))
    )
    client = Client(b"x" * size)
    asyncio.run(one(made, path, client, method=METHODS.get(path, "POST"), headers=TOKEN | headers, size=size))
    assert [found for found, _ in heard] == [kind]


METHODS = {"/api/v1/projects/main/runs": "GET", "/agent/files/a": "GET"}


def test_requests_count_for_the_objectives_as_they_say() -> None:
    counters = Counters()
    meter = RequestMeter(counters, Measures(counters))
    for kind, status, seconds in (
        ("api", 200, 0.5),
        ("api", 404, 1.5),
        ("api", 500, 9.0),
        ("held", 200, 60.0),
        ("transfer", 503, 60.0),
        ("agents", 500, 0.1),
        ("other", 500, 0.1),
        ("api", None, 9.0),
    ):
        meter("/r", kind, status, seconds)
    counted = counters.counts()
    found = {
        name: (counted["objective_events", key], counted["objective_misses", key])
        for name in ("answers", "speed")
        for key in [(("objective", name),)]
    }
    assert found == {"answers": (5, 2), "speed": (2, 1)}
    labels = {tuple(value for _, value in labels): each.number for (_, labels), each in counters.histograms().items()}
    assert labels["api", "2xx"] == 1 and labels["agents", "5xx"] == 1 and sum(labels.values()) == 7

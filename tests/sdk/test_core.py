"""Requests from the first attempt to the answer: which are sent again, and what a refusal becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from chalicelib.errors import ProjectNotFound
from dstack_serverless import (
    AlreadyExists,
    DstackError,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    Unanswered,
    WaitedTooLong,
)
from dstack_serverless.api import backends, files, metrics, runs, v1_runs
from dstack_serverless.sdk.core import FIRST_PAUSE, KEY, keyed
from dstack_serverless.sdk.flow import Request
from tests.sdk.conftest import KINDS, waited

Answer = httpx.Response | httpx.RequestError
READ = runs.get("main", run_name="x")
WRITE = runs.stop("main", runs_names=["x"])
BUSY = {"detail": [{"msg": "Busy.", "code": "error"}]}


class Server:
    """Gives these answers, one after the other, and keeps what it was sent."""

    def __init__(self, kind: str, answers: Sequence[Answer], **settings: Any) -> None:
        self.answers, self.got, self.pauses = [*answers], list[httpx.Request](), list[float]()
        transport = httpx.MockTransport(self._handle)
        client = KINDS[kind](
            "http://server:3000", "token", "main", transport=transport, home=Path("/nowhere"), **settings
        )
        client.core = replace(client.core, random=lambda: 1.0)
        client.sleep = self.pauses.append if kind == "sync" else self._sleep
        self.client = client

    def send(self, request: Request[Any]) -> Any:
        return waited(self.client.send(request))

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.got.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_call_is_sent_as_the_protocol_has_it(kind: str) -> None:
    server = Server(kind, [httpx.Response(200, json={"id": "1"})])
    assert server.send(READ) == {"id": "1"}
    (got,) = server.got
    assert (got.method, str(got.url)) == ("POST", "http://server:3000/api/project/main/runs/get")
    assert got.headers["authorization"] == "Bearer token" and got.headers["x-api-version"].startswith("0.22.")
    assert got.read() == b'{"run_name":"x"}'


def test_what_isnt_json_in_a_body(kind: str) -> None:
    server = Server(
        kind, [httpx.Response(200, json=None), httpx.Response(200, json={}), httpx.Response(200, text="a 1\n")]
    )
    assert server.send(backends.get_yaml("a/b", "aws")) is None
    server.send(files.upload_archive(file=b"content", file_name="abc"))
    assert server.send(metrics.prometheus()) == "a 1\n"
    no_body, upload, page = server.got
    assert no_body.url.raw_path == b"/api/project/a%2Fb/backends/aws/get_yaml" and no_body.read() == b""
    assert b'name="file"; filename="abc"' in upload.read() and page.method == "GET"


def test_without_a_connection_everything_is_sent_again(kind: str) -> None:
    server = Server(kind, [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), httpx.Response(200, json=None)])
    assert server.send(WRITE) is None
    assert len(server.got) == 3 and server.pauses == [FIRST_PAUSE, 2 * FIRST_PAUSE]


@pytest.mark.parametrize(
    "failure",
    [
        lambda: httpx.ReadTimeout("slow"),
        lambda: httpx.RemoteProtocolError("cut"),
        lambda: httpx.Response(503, json=BUSY),
    ],
)
def test_when_the_answer_is_lost_only_what_may_be_repeated_is(kind: str, failure: Callable[[], Answer]) -> None:
    for request in (READ, keyed(WRITE)):
        server = Server(kind, [failure(), httpx.Response(200, json=None)])
        server.send(request)
        assert len({got.headers.get(KEY) for got in server.got}) == 1 and len(server.got) == 2
    server = Server(kind, [failure()])
    with pytest.raises(Refused) as refused:
        server.send(WRITE)
    assert len(server.got) == 1 and (not isinstance(refused.value, Unanswered) or refused.value.sent)


def test_a_submission_whose_answer_was_lost_is_sent_again_with_its_key(kind: str) -> None:
    server = Server(kind, [httpx.ReadTimeout("slow"), httpx.Response(200, json={"id": "1"})])
    assert waited(server.client.runs.submit({"type": "task"})) == {"id": "1"}
    first, again = server.got
    assert first.headers[KEY] == again.headers[KEY] and first.read() == again.read()


def test_a_write_of_a_resource_has_a_key_and_waits_as_it_is_asked_to(kind: str) -> None:
    busy = {"title": "T", "detail": "Busy.", "code": "overloaded"}
    for asked, pause in (("2", 2.0), ("9999", 30.0), ("soon", FIRST_PAUSE)):
        refusal = httpx.Response(503, json=busy, headers={"Retry-After": asked})
        server = Server(kind, [refusal, httpx.Response(204)])
        assert server.send(v1_runs.delete("main", "x")) is None
        assert len({got.headers[KEY] for got in server.got}) == 1 and server.pauses == [pause]


def test_patience_has_an_end(kind: str) -> None:
    server = Server(kind, [httpx.ConnectError("refused")] * 3, retries=2)
    with pytest.raises(Unanswered, match=r"No server answers at http://server:3000 \(refused\)") as refused:
        server.send(READ)
    assert not refused.value.sent and len(server.got) == 3


@pytest.mark.parametrize("noun", ["runs", "fleets", "volumes", "gateways"])
@pytest.mark.parametrize(("timeout", "retries", "attempts"), [(10, 4, [4.0, 4.0, 2.0]), (3, 0, [3.0]), (0, 4, [1.0])])
def test_waiting_ends_in_time_however_slow_the_server(
    kind: str, noun: str, timeout: float, retries: int, attempts: list[float]
) -> None:
    got: list[float] = []  # the seconds that each answer may take: here they always pass

    class Slow(Server):
        def _handle(self, request: httpx.Request) -> httpx.Response:
            got.append(request.extensions["timeout"]["read"])
            raise httpx.ReadTimeout("slow")

    client = Slow(kind, [], timeout=4.0, retries=retries).client
    client.core = replace(client.core, clock=lambda: sum(got))
    with pytest.raises(WaitedTooLong, match="no answer in time"):
        waited(getattr(client, noun).wait("x", timeout=timeout))
    assert got == attempts


def test_pauses_are_spread() -> None:
    core = Server("sync", [], retries=3).client.core
    shortest = [*replace(core, random=lambda: 0.0)._pauses()]
    assert [pause / 2 for pause in core._pauses()] == shortest == [0.1, 0.2, 0.4]


REFUSALS: list[tuple[int, Any, type[DstackError], str]] = [
    (400, {"detail": [{"msg": "No.", "code": "error"}]}, Refused, "error"),
    (400, {"detail": [{"msg": "None.", "code": "resource_not_exists"}]}, NotFound, "resource_not_exists"),
    (400, {"detail": [{"msg": "There.", "code": "resource_exists"}]}, AlreadyExists, "resource_exists"),
    (400, {"detail": [{"msg": "a: no\nb: no", "code": "error", "fields": ["a", "b"]}]}, Invalid, "error"),
    (403, {"detail": {"msg": "No.", "code": None}}, Forbidden, "error"),
    (404, {"detail": {"msg": "No project.", "code": None}}, ProjectNotFound, "error"),
    (404, {"detail": "There is nothing at /x"}, Refused, "error"),
    (500, {"detail": [{"msg": "Failed (error id 1).", "code": "error"}]}, Refused, "error"),
    (502, "<html>", Refused, "error"),
    (401, {"title": "T", "detail": "No.", "code": "unauthenticated", "errors": []}, Forbidden, "unauthenticated"),
    (404, {"title": "T", "detail": "None.", "code": "not-found", "errors": []}, NotFound, "not-found"),
    (409, {"title": "T", "detail": "There.", "code": "already-exists"}, AlreadyExists, "already-exists"),
    (409, {"title": "T", "detail": "No.", "code": "refused", "hint": "Wait."}, Refused, "refused"),
]


@pytest.mark.parametrize(("status", "body", "kind_of", "code"), REFUSALS)
def test_a_refusal_becomes_an_error(kind: str, status: int, body: Any, kind_of: type[DstackError], code: str) -> None:
    content: dict[str, Any] = {"text": body} if isinstance(body, str) else {"json": body}
    with pytest.raises(DstackError) as refused:
        Server(kind, [httpx.Response(status, **content)]).send(WRITE)
    assert (type(refused.value), refused.value.code, refused.value.status) == (kind_of, code, status)


def test_the_places_of_mistakes() -> None:
    parts = [{"detail": "unknown key", "pointer": "/groups/0/comands", "code": "unknown-key", "hint": "or `commands`?"}]
    parts.append({"detail": "too large", "pointer": "", "parameter": "limit", "code": "invalid-value", "hint": None})
    body = {"title": "T", "detail": "unknown key", "code": "invalid", "hint": None, "errors": parts}
    with pytest.raises(Invalid) as refused:
        Server("sync", [httpx.Response(422, json=body)]).send(WRITE)
    problem, of_query = refused.value.problems
    assert of_query.path == "limit"
    assert (problem.path, problem.hint, problem.code) == ("groups.0.comands", "or `commands`?", "unknown-key")


def test_another_program_is_recognised(kind: str) -> None:
    with pytest.raises(Refused, match="not a control plane"):
        Server(kind, [httpx.Response(200, text="<html>")]).send(READ)


@pytest.mark.parametrize("request_", [READ, WRITE])
def test_a_redirect_is_no_success(kind: str, request_: Request[Any]) -> None:
    answer = httpx.Response(308, headers={"Location": "https://server/x"}, text="<html>")
    with pytest.raises(Refused, match="308") as refused:
        Server(kind, [answer]).send(request_)
    assert "https://server/x" in refused.value.hint
    assert Server(kind, [httpx.Response(304)]).send(READ) is None  # what was asked for hasn't changed


def test_a_list_is_read_page_by_page(kind: str) -> None:
    rows = [{"id": str(number), "submitted_at": f"at {number}"} for number in range(150)]
    server = Server(kind, [httpx.Response(200, json=rows[:100]), httpx.Response(200, json=rows[100:])])
    assert waited(server.client.runs.list()) == rows
    assert b'"prev_submitted_at":"at 99","prev_run_id":"99"' in server.got[1].read()
    server = Server(kind, [httpx.Response(200, json=rows[:100]), httpx.Response(200, json=rows[100:120])])
    assert waited(server.client.runs.list(limit=120)) == rows[:120] and b'"limit":20' in server.got[1].read()


def test_a_log_is_read_page_by_page_and_nothing_twice(kind: str) -> None:
    def page(following: str | None, *messages: str) -> httpx.Response:
        return httpx.Response(200, json={"logs": [{"message": each} for each in messages], "next_token": following})

    job = {"job_spec": {"job_num": 0, "replica_num": 0}, "job_submissions": [{"id": "a", "status": "running"}]}
    going, ended = ({"status": status, "jobs": [job]} for status in ("running", "done"))
    answers = [
        *(httpx.Response(200, json=going), page("1", "YQ=="), page(None, "Yg==")),
        *(httpx.Response(200, json=going), page(None, "Yg==")),
        *(httpx.Response(200, json=ended), page("2", "Yg==", "Yw=="), page(None, "ZA==")),
    ]
    server = Server(kind, answers)
    assert waited(server.client.runs.logs("x", follow=True)) == [b"a", b"b", b"c", b"d"]
    assert server.answers == [] and len(server.pauses) == 2


def test_a_log_stays_with_its_replica(kind: str) -> None:
    answers = []
    for statuses in (("provisioning", "running"), ("running", "running"), ("done", "failed")):
        jobs = [
            {
                "job_spec": {"job_num": 0, "replica_num": place},
                "job_submissions": [{"id": f"s{place}", "status": status}],
            }
            for place, status in enumerate(statuses)
        ]
        run = {"status": "done" if "done" in statuses else "running", "jobs": jobs}
        page = {"logs": [{"message": "YQ=="}], "next_token": None}
        answers += [httpx.Response(200, json=run), httpx.Response(200, json=page)]
    server = Server(kind, answers)
    assert waited(server.client.runs.logs("x", follow=True)) == [b"a"]
    assert {orjson.loads(got.read())["job_submission_id"] for got in server.got[1::2]} == {"s1"}


def test_a_moment_without_a_zone_is_one_of_this_machine(kind: str) -> None:
    job = {"job_spec": {"job_num": 0, "replica_num": 0}, "job_submissions": [{"id": "a", "status": "done"}]}
    ended = httpx.Response(200, json={"status": "done", "jobs": [job]})
    server = Server(kind, [ended, httpx.Response(200, json={"logs": [], "next_token": None})])
    since = datetime(2026, 1, 1, 12)
    assert waited(server.client.runs.logs("x", since=since)) == []
    sent = datetime.fromisoformat(orjson.loads(server.got[1].read())["start_time"])
    assert sent.utcoffset() is not None and sent == since.astimezone()


def test_what_cant_be_sent_keeps_no_other_submission(kind: str) -> None:
    server = Server(kind, [httpx.Response(200, json={"id": "1"}), httpx.Response(200, json={"id": "2"})])
    wrong: list[Any] = [{"type": "task", "env": {"A": {1}}}, {"type": "task", "x": {1}}, None]
    done = waited(server.client.runs.submit_many([{"type": "task"}, *wrong, {"type": "task"}], at_once=1))
    assert [type(each) for each in done] == [dict, Invalid, Invalid, Invalid, dict] and len(server.got) == 2
    assert "set" in str(done[2]) and "None" in str(done[3])


def test_an_answer_that_cant_be_unpacked_is_lost(kind: str) -> None:
    server = Server(kind, [httpx.DecodingError("no gzip"), httpx.Response(200, json={"id": "1"})])
    assert server.send(READ) == {"id": "1"}
    with pytest.raises(Unanswered, match="no gzip") as lost:
        Server(kind, [httpx.DecodingError("no gzip")]).send(WRITE)
    assert lost.value.sent


def test_many_submissions_are_bounded() -> None:
    going, most = 0, 0

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0)
        going -= 1
        return httpx.Response(200, json={})

    client = KINDS["async"](
        "http://server", "token", "main", transport=httpx.MockTransport(handle), home=Path("/nowhere")
    )
    done = waited(client.runs.submit_many([{"type": "task"}] * 20, at_once=3))
    assert done == [{}] * 20 and most == 3

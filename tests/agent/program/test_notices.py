"""The notice that a spot machine is taken back, asked of metadata services as those of EC2, Azure and Google are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from chalicelib.agent.program.notices import (
    LEFT,
    SOURCES,
    ComputeEngine,
    Ec2,
    NoticePoller,
    ScheduledEvents,
    parse_events,
    parse_notice,
)

AT = 1_795_422_120_000_000
NOTICE = json.dumps({"action": "terminate", "time": "2026-11-23T08:22:00Z"})


class Metadata(HTTPServer):
    """IMDSv2: a token first, which ends when the test says so."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tokens: list[str] = []
        self.notice = ""
        self.status = 0  # instead of an answer
        self.base = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        assert self.path == "/latest/api/token"
        assert 0 < int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) <= 21_600
        self.server.tokens.append(f"token-{len(self.server.tokens)}")
        self._answer(200, self.server.tokens[-1])

    def do_GET(self) -> None:
        if self.path.startswith("/metadata/"):
            self._of_azure()
            return
        assert self.path == "/latest/meta-data/spot/instance-action"
        if self.server.status:
            self._answer(self.server.status, "")
        elif self.headers["X-aws-ec2-metadata-token"] not in self.server.tokens[-1:]:
            self._answer(401, "")
        else:
            self._answer(200 if self.server.notice else 404, self.server.notice)

    def _of_azure(self) -> None:
        if self.headers["Metadata"] != "true" or self.server.status:
            self._answer(self.server.status or 400, "")
        elif self.path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
            self._answer(200, "machine-1")
        else:
            assert self.path == "/metadata/scheduledevents?api-version=2020-07-01"
            self._answer(200, self.server.notice)

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Not to the test's output."""


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    server = Metadata()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_machine_hears_when_it_is_taken_back(metadata: Metadata) -> None:
    ec2 = Ec2(metadata.base)
    assert ec2() is None
    metadata.notice = NOTICE
    assert ec2() == AT
    assert len(metadata.tokens) == 1  # one token serves for hours


def test_a_token_that_has_expired_is_replaced(metadata: Metadata) -> None:
    ec2 = Ec2(metadata.base)
    assert ec2() is None
    metadata.tokens.append("another's")
    metadata.notice = NOTICE
    assert ec2() == AT


def test_no_proxy_of_the_environment_is_asked(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Ec2(metadata.base)() is None


def test_a_service_that_fails_is_no_notice_and_no_silence(metadata: Metadata) -> None:
    metadata.status = 500
    with pytest.raises(OSError, match="500"):
        Ec2(metadata.base)()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"action": "terminate", "time": 5}', '{"time": "soon"}'])
def test_a_notice_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_notice(text)


def test_that_nobody_answers_is_said_once_and_so_is_that_somebody_does_again(metadata: Metadata) -> None:
    logged: list[str] = []
    listen = NoticePoller(Ec2(metadata.base), logged.append)
    metadata.status = 403
    assert [listen(), listen(), listen()] == [None, None, None]
    assert len(logged) == 1 and "403" in logged[0]
    metadata.status, metadata.notice = 0, NOTICE
    assert [listen(), listen()] == [AT, AT]
    assert len(logged) == 2 and "again" in logged[1]
    metadata.status = 403
    listen()
    assert len(logged) == 3


def test_the_words_of_the_command_line() -> None:
    assert {"ec2": Ec2, "gce": ComputeEngine, "scheduled-events": ScheduledEvents} == SOURCES


# --- Azure -----------------------------------------------------------------------------------------------------------

NOW = AT - 30_000_000


def document(*events: dict[str, object]) -> str:
    return json.dumps({"DocumentIncarnation": 2, "Events": list(events)})


def event(
    kind: str = "Preempt", name: str = "Machine-1", at: str = "Mon, 23 Nov 2026 08:22:00 GMT"
) -> dict[str, object]:
    return {"EventId": "e", "EventType": kind, "ResourceType": "VirtualMachine", "Resources": [name], "NotBefore": at}


@pytest.mark.parametrize(
    ("events", "notice"),
    [
        ((), None),
        ((event(),), AT),
        ((event("Terminate"),), AT),
        ((event(name="machine-2"), event()), AT),
        ((event(name="machine-2"),), None),
        ((event("Freeze"), event("Reboot"), event("Redeploy")), None),
        ((event(at=""),), NOW),
    ],
    ids=["none", "spot", "announced", "among others", "another's", "maintenance", "begun"],
)
def test_an_event_counts_if_it_takes_this_machine_back(events: tuple[dict[str, object], ...], notice: object) -> None:
    assert parse_events(document(*events), "machine-1", NOW) == notice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Events": [1]}', document(event(at="soon"))])
def test_events_that_make_no_sense_are_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_events(text, "machine-1", NOW)


def test_a_machine_hears_of_its_events(metadata: Metadata) -> None:
    ask = ScheduledEvents(metadata.base)
    metadata.notice = document()
    assert ask() is None
    metadata.notice = document(event())
    assert ask() == AT
    metadata.status = 410
    with pytest.raises(OSError, match="410"):
        ask()


# --- Compute Engine --------------------------------------------------------------------------------------------------


class OfGoogle(Handler):
    def do_GET(self) -> None:
        assert self.path == "/computeMetadata/v1/instance/preempted"
        if self.headers["Metadata-Flavor"] != "Google":
            self._answer(403, "")
        else:
            self._answer(self.server.status or 200, self.server.notice)


@pytest.fixture
def google(metadata: Metadata) -> Metadata:
    metadata.RequestHandlerClass = OfGoogle
    metadata.notice = "FALSE"
    return metadata


def test_a_machine_of_google_has_half_a_minute_from_when_it_hears(google: Metadata) -> None:
    times = iter([100.0])
    compute = ComputeEngine(google.base, lambda: next(times))
    assert compute() is None
    google.notice = "TRUE"
    assert compute() == round((100 + LEFT) * 1_000_000)
    google.notice = "FALSE"
    assert compute() == round((100 + LEFT) * 1_000_000), "it doesn't move on with each answer"


@pytest.mark.parametrize("text", ["", "true", "<html>"])
def test_an_answer_of_google_that_makes_no_sense_is_an_error(google: Metadata, text: str) -> None:
    google.notice = text
    with pytest.raises(ValueError, match="TRUE"):
        ComputeEngine(google.base)()


def test_a_metadata_service_of_google_that_fails_is_no_notice(google: Metadata) -> None:
    google.status = 503
    with pytest.raises(OSError, match="503"):
        ComputeEngine(google.base)()

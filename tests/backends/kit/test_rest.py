"""The client of a JSON API: what is sent, and what each answer means."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from chalicelib import errors as ours
from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure
from chalicelib.backends.kit.limits import TokenBucket
from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall, RestClient, bearer, failure_by_status
from chalicelib.domain.instants import SECOND
from chalicelib.errors import BackendError, Bug, Gone, QuotaExceeded, Throttled, Transient, Unfit

KEY = "key-0123456789abcdef"
NOW = 1_795_000_000 * SECOND
BASE = "https://api.example.com/v2"


class Line:
    """A provider that gives one answer after another, and the last for ever."""

    def __init__(self, *answers: RestAnswer | Exception) -> None:
        self.answers, self.calls = list(answers), list[RestCall]()

    def send(self, call: RestCall, deadline: float) -> RestAnswer:
        self.calls.append(call)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def reply(status: int, data: Any = None, **headers: str) -> RestAnswer:
    return RestAnswer(status, headers, b"" if data is None else orjson.dumps(data))


def client(line: Line, **other: Any) -> RestClient:
    table = ErrorTable("Example", ((QuotaExceeded, "too-many"),))
    given = {"secrets": [KEY], "send": line.send, "now": lambda: NOW, **other}
    return RestClient(BASE, table, bearer(KEY), **given)


def failed(line: Line, *path: str, **options: Any) -> BackendError:
    with pytest.raises(BackendError) as found:
        client(line).call("POST", *(path or ("pods",)), **options)
    return found.value


def test_a_call_is_sent_as_it_is_meant() -> None:
    line = Line(reply(200, {"id": 1}))
    found = client(line).call("PUT", "pods", "a/b c", query={"limit": 5, "q": "x&y"}, body={"n": "ü", "p": "private"})
    (call,) = line.calls
    assert found == {"id": 1}
    assert call.url == f"{BASE}/pods/a%2Fb%20c?limit=5&q=x%26y"
    assert (call.method, orjson.loads(call.body)) == ("PUT", {"n": "ü", "p": "private"})
    assert call.headers == {
        "Accept": "application/json",
        "Authorization": f"Bearer {KEY}",
        "Content-Type": "application/json",
        "User-Agent": "dstack-serverless",
    }
    assert KEY not in repr(call) and "private" not in repr(call)


def test_a_signature_is_made_of_what_is_sent() -> None:
    line, signed = Line(reply(204)), list[RestCall]()

    def sign(call: RestCall) -> Mapping[str, str]:
        signed.append(call)
        return {"X-Signature": f"{call.method} {call.path} {call.query}"}

    RestClient(BASE, ErrorTable("Example"), sign, send=line.send).call("GET", "pods", query={"a": "b"})
    assert line.calls[0].headers["X-Signature"] == "GET /v2/pods (('a', 'b'),)"
    assert signed[0].url == line.calls[0].url


@pytest.mark.parametrize("id", ["", ".", ".."])
def test_an_id_that_would_lead_elsewhere_is_never_sent(id: str) -> None:
    line = Line(reply(200))
    with pytest.raises(Bug):
        client(line).call("DELETE", "pods", id)
    assert line.calls == []


def test_an_empty_answer_is_none() -> None:
    assert client(Line(reply(204))).call("DELETE", "pods", "1") is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(300, "Transient"), (302, "Transient"), (400, "Unfit"), (401, "InvalidCredentials"), (402, "QuotaExceeded"),
     (403, "MissingPermission"), (404, "Gone"), (405, "Unfit"), (409, "AlreadyThere"), (410, "Gone"), (413, "Unfit"),
     (418, "Transient"), (422, "Unfit"), (429, "Throttled"), (500, "Transient"), (503, "Transient")],
)  # fmt: skip
def test_a_failure_is_one_attempt_and_in_our_words(status: int, kind: str) -> None:
    line = Line(reply(status, {"message": "what it said"}))
    error = failed(line, region="EU-1")
    assert type(error) is getattr(ours, kind) and "what it said" in str(error)
    assert len(line.calls) == 1


def test_a_call_may_have_a_meaning_of_its_own_for_an_answer() -> None:
    assert type(failed(Line(reply(404)), meanings={404: Unfit})) is Unfit
    assert type(failed(Line(reply(400, {"error": "no_such_ask"})), meanings={"no_such_ask": Gone})) is Gone


def test_a_failure_names_the_call_and_the_place() -> None:
    error = failed(Line(reply(400, {"error": {"code": "odd", "message": "no"}})), region="EU-1")
    assert str(error) == "POST /v2/pods in EU-1: odd: no"
    assert error.provider_code == "odd"


def test_a_provider_may_report_failures_with_success() -> None:
    def failure_of(status: int, data: Any) -> ProviderFailure | None:
        failed = isinstance(data, dict) and data.get("success") is False
        return (
            ProviderFailure(data["error"], data.get("msg", ""), status) if failed else failure_by_status(status, data)
        )

    line = Line(reply(200, {"success": False, "error": "too-many"}), reply(200, {"success": True}))
    calls = client(line, failure_of=failure_of)
    with pytest.raises(QuotaExceeded):
        calls.call("GET", "pods")
    assert calls.call("GET", "pods") == {"success": True}


@pytest.mark.parametrize("body", [b"<html><title>Login</title></html>", b'{"instances": [', b"\xff\x00"])
def test_what_isnt_json_is_no_answer_to_build_on(body: bytes) -> None:
    error = failed(Line(RestAnswer(200, {}, body)))
    assert type(error) is Transient and "200: the answer isn't JSON" in str(error)


def test_a_page_of_html_is_read_without_its_tags() -> None:
    page = b"<html>\n<STYLE>\np {}\n</STYLE><h1>502 Bad Gateway</h1><script>x()</script>\n<p>nginx</p></html>"
    assert str(failed(Line(RestAnswer(502, {}, page)))).endswith("502: 502 Bad Gateway nginx")


def test_no_answer_is_an_unknown_outcome() -> None:
    error = failed(Line(NoAnswer("timed out")), region="EU-1")
    assert type(error) is Transient and str(error) == "POST /v2/pods in EU-1 has no answer: timed out"


@pytest.mark.parametrize(
    "answer",
    [reply(400, {"message": f"bad key {KEY}"}), reply(401, {"error": f"unknown-{KEY}"}), NoAnswer(f"https://x?key={KEY}"),
     RestAnswer(500, {}, f"<p>{KEY}</p>".encode()), RestAnswer(200, {}, f"<p>{KEY}</p>".encode())],
)  # fmt: skip
def test_no_failure_shows_the_key(answer: RestAnswer | Exception) -> None:
    error = failed(Line(answer))
    assert KEY not in "".join(traceback.format_exception(error)) and "[hidden]" in str(error)


def test_what_a_call_sends_in_confidence_isnt_shown_either() -> None:
    error = failed(Line(reply(422, {"message": "no field `script`: #!/bin/sh\ntoken=12345678"})), secrets=["12345678"])
    assert "12345678" not in str(error)


# --- links -----------------------------------------------------------------------------------------------------------


def test_a_link_to_the_next_page_is_followed_at_home() -> None:
    line = Line(reply(200, []))
    client(line).follow(f"{BASE}/pods?after=a%2Bb&empty=")
    assert line.calls[0].url == f"{BASE}/pods?after=a%2Bb&empty="
    assert line.calls[0].headers["Authorization"]


@pytest.mark.parametrize(
    "url", ["https://evil.example.com/v2/pods", "http://api.example.com/v2/pods", "https://api.example.com:8443/", "x"]
)
def test_a_link_to_elsewhere_gets_no_credentials(url: str) -> None:
    line = Line(reply(200, []))
    with pytest.raises(Transient, match="goes on elsewhere"):
        client(line).follow(url)
    assert line.calls == []


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("12", 12.0), ("Wed, 18 Nov 2026 11:07:10 GMT", 30.0), ("", 5.0), ("soon", 5.0), ("99999999", 3600.0)],
)
def test_a_refusal_says_when_to_come_again(header: str, seconds: float) -> None:
    error = failed(Line(reply(429, **{"retry-after": header})))
    assert isinstance(error, Throttled) and error.retry_after == seconds


def test_a_refusal_holds_the_whole_account_back() -> None:
    at = [NOW]
    line = Line(reply(429, **{"retry-after": "30"}), reply(200, []))
    bucket = TokenBucket("Example", 10.0, 100, lambda: at[0])
    one, other = (client(line, bucket=bucket) for _ in range(2))
    for each in (one, other):
        with pytest.raises(Throttled) as found:
            each.call("GET", "pods")
        assert found.value.retry_after == 30.0
    assert len(line.calls) == 1
    at[0] += 30 * SECOND
    assert other.call("GET", "pods") == []


def test_a_refusal_of_a_call_with_limits_of_its_own_holds_back_only_those() -> None:
    line = Line(reply(429), reply(200, []))
    account, launches = (TokenBucket("Example", 10.0, 100, lambda: NOW) for _ in range(2))
    calls = client(line, bucket=account)
    with pytest.raises(Throttled):
        calls.call("POST", "launch", buckets=[launches])
    assert calls.call("GET", "pods") == []
    with pytest.raises(Throttled):
        calls.call("POST", "launch", buckets=[launches])
    assert len(line.calls) == 2

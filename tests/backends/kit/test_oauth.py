"""Exchanges for access tokens, and what their answers mean."""

from __future__ import annotations

from urllib.parse import parse_qs

import orjson
import pytest

from chalicelib.backends.kit.oauth import MARGIN, TokenService
from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall
from chalicelib.domain.instants import SECOND
from chalicelib.errors import BackendError, InvalidCredentials, Throttled, Transient

FORM = {"grant_type": "client_credentials", "client_id": "me", "client_secret": "s3cret-of-mine"}


class Service:
    def __init__(self, status: int = 200, body: object = b"", **headers: str) -> None:
        self.calls: list[RestCall] = []
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        self.answer = RestAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, content)

    def send(self, call: RestCall, deadline: float) -> RestAnswer:
        self.calls.append(call)
        return self.answer

    def exchanged(self) -> tuple[str, int]:
        service = TokenService("Example", "Example's login", self.send, lambda: 0)
        return service.exchanged("https://login.example.com/mine/token", FORM, 5.0)


def test_a_form_gets_a_token_that_is_used_until_shortly_before_its_end() -> None:
    service = Service(body={"access_token": "t", "expires_in": "3600"})
    assert service.exchanged() == ("t", 3600 * SECOND - MARGIN)
    (call,) = service.calls
    assert (call.method, call.url) == ("POST", "https://login.example.com/mine/token")
    assert {name: values[0] for name, values in parse_qs(call.body.decode()).items()} == FORM


@pytest.mark.parametrize("lasts", [None, "soon", "nan", "inf"])
def test_a_token_that_doesnt_say_how_long_it_lasts_serves_once(lasts: object) -> None:
    _, lasting = Service(body={"access_token": "t", "expires_in": lasts}).exchanged()
    assert lasting < 0


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (400, {"error_description": "no s3cret-of-mine\r\nTrace"}, InvalidCredentials, r"answers 400: no \[hidden\]$"),
        (401, {"error": "invalid_client"}, InvalidCredentials, "^Example refused the credentials: Example's login"),
        (403, b"<html>", InvalidCredentials, "answers 403"),
        (200, {"token": "t"}, Transient, "answers 200"),
        (200, ["t"], Transient, "answers 200"),
        (503, b"", Transient, "answers 503"),
    ],
)
def test_a_refusal_is_about_the_credentials_and_all_else_may_work_later(
    status: int, body: object, kind: type[BackendError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        Service(status, body).exchanged()


def test_who_asks_too_often_is_told_when_to_ask_again() -> None:
    with pytest.raises(Throttled) as throttled:
        Service(429, {"error": "slow"}, retry_after="7").exchanged()
    assert throttled.value.retry_after == 7.0


def test_a_login_without_an_answer_hides_the_secret() -> None:
    def send(call: RestCall, deadline: float) -> RestAnswer:
        raise NoAnswer(f"while sending {call.body.decode()}")

    service = TokenService("Example", "Example's login", send, lambda: 0)
    with pytest.raises(Transient, match=r"^Example's login has no answer: .*client_secret=\[hidden\]$"):
        service.exchanged("https://login.example.com/token", FORM, 5.0)

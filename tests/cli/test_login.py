"""`dstack login`, against a scripted plane and a scripted browser."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from cli.connection.config import config_path, default_of, load_projects
from tests.cli.conftest import Dstack
from tests.cli.plane import Plane

ENTERED = {"username": "ann", "creds": {"token": "signed-on"}}
CODE = {"state": "s", "user_code": "ABCD", "verification_uri": "https://l.example", "interval": 5, "expires_in": 600}


@pytest.fixture
def server(plane: Plane) -> Plane:
    plane.answers |= {
        "/api/auth/list_providers": [{"name": "corp", "enabled": True}],
        "/api/auth/corp/authorize": {"authorization_url": "https://l.example?state=s"},
        "/api/auth/corp/callback": ENTERED,
        "/api/auth/corp/device": {**CODE, "verification_uri_complete": "https://l.example/ABCD"},
        "/api/auth/corp/device_token": ENTERED,
        "/api/projects/list": [{"project_name": "main"}, {"project_name": "research"}],
    }
    return plane


def requested_port(plane: Plane) -> int:
    return int(next(each.body["local_port"] for each in plane.requests if each.path.endswith("/authorize")))


def visiting(plane: Plane, *visits: dict[str, str], path: str = "/auth/callback") -> Callable[[str], bool]:
    """A browser that comes back with these, one after the other."""

    def go() -> None:
        for visit in visits:
            try:
                urlopen(f"http://127.0.0.1:{requested_port(plane)}{path}?{urlencode(visit)}", timeout=120).close()
            except HTTPError:
                continue  # what a stranger is told

    def browse(address: str) -> bool:
        Thread(target=go, daemon=True).start()
        return True

    return browse


def login(dstack: Dstack, plane: Plane, *args: str, browse: Any = None, answers: str = "") -> Any:
    terminal = replace(dstack.terminal, browse=browse or visiting(plane, {"state": "s", "code": "c"}))
    return Dstack(terminal, dstack.naps)("login", "--url", plane.url, *args, answers=answers)


def test_plain_http_to_another_machine_is_warned_of_before_anybody_signs_on(bare: Dstack, server: Plane) -> None:
    ended = bare("login", "--url", "http://gpu.example.com", "-p", "nobody")
    assert ended.code == 1 and ended.err.startswith("http://gpu.example.com isn't https: your token can be read")
    assert "isn't https" not in bare("login", "--url", "http://localhost:3000", "-p", "nobody").err


def test_a_first_sign_on_adds_all_projects(bare: Dstack, server: Plane) -> None:
    ended = login(bare, server)
    assert ended.code == 0, ended.err
    assert "https://l.example?state=s" in ended.out and "You are ann" in ended.out
    found = load_projects(config_path(bare.terminal.home))
    assert [(each.name, each.token) for each in found] == [("main", "signed-on"), ("research", "signed-on")]
    assert default_of(found) == found[0]
    (sent,) = (each.body for each in server.requests if each.path.endswith("/callback"))
    assert sent == {"code": "c", "state": "s", "base_url": None}
    assert not any(
        "Authorization" in each.headers
        and each.path.startswith("/api/auth")
        and "signed" in each.headers["Authorization"]
        for each in server.requests
    )


def test_a_stranger_who_visits_first_changes_nothing(bare: Dstack, server: Plane) -> None:
    browse = visiting(server, {"state": "other", "code": "evil"}, {}, {"state": "s", "code": "c"})
    assert login(bare, server, browse=browse).code == 0
    assert [each.body["code"] for each in server.requests if each.path.endswith("/callback")] == ["c"]


def test_what_the_provider_refuses_is_said(bare: Dstack, server: Plane) -> None:
    given = {"state": "s", "error": "access_denied", "error_description": "Not today"}
    ended = login(bare, server, browse=visiting(server, given))
    assert ended.code == 1 and "didn't let you sign on: access_denied: Not today." in ended.err


def test_a_code_is_asked_about_until_somebody_typed_it(bare: Dstack, server: Plane) -> None:
    waits = iter([None, None, ENTERED])
    server.answers["/api/auth/corp/device_token"] = lambda body: next(waits)
    ended = login(bare, server, "--device")
    assert ended.code == 0 and "ABCD" in ended.out and bare.naps == [5, 5, 5]


def test_a_code_that_nobody_types_ends(bare: Dstack, server: Plane) -> None:
    server.answers |= {
        "/api/auth/corp/device_token": None,
        "/api/auth/corp/device": {**CODE, "verification_uri_complete": None, "expires_in": 0},
    }
    ended = login(bare, server, "--device")
    assert ended.code == 1 and "in time" in ended.err


@pytest.mark.parametrize("address", ["file:///etc/passwd", "javascript:alert(1)", "https://", "https://a b", 7])
def test_only_web_addresses_are_opened_and_shown(bare: Dstack, server: Plane, address: Any) -> None:
    opened: list[str] = []
    server.answers["/api/auth/corp/authorize"] = {"authorization_url": address}
    server.answers["/api/auth/corp/device"] = {**CODE, "verification_uri": address, "verification_uri_complete": None}
    for flags in ((), ("--device",)):
        ended = login(bare, server, *flags, browse=opened.append)
        assert ended.code == 1 and "as a web address, which it can't be" in ended.err, ended
    assert opened == []


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ({"/api/auth/corp/callback": {**ENTERED, "creds": {"token": "a\nb"}}}, "something else as a token"),
        ({"/api/projects/list": [{"project_name": "a: b"}]}, "'a: b' as a project's name"),
        ({"/api/projects/list": [{"project_name": 7}]}, "'7' as a project's name"),
    ],
)
def test_nothing_goes_into_the_configuration_that_isnt_what_it_should_be(
    bare: Dstack, server: Plane, answers: dict[str, Any], sent: str
) -> None:
    server.answers |= answers
    ended = login(bare, server)
    assert ended.code == 1 and f"The server sent {sent}" in ended.err
    assert not config_path(bare.terminal.home).exists()


@pytest.mark.parametrize(
    ("answers", "args", "message"),
    [
        ({"/api/auth/list_providers": []}, (), "dstack project add"),
        ({"/api/auth/list_providers": [{"name": n, "enabled": True} for n in ("a", "b")]}, (), "one of a, b"),
        ({}, ("-p", "other"), "There is no provider other"),
        ({"/api/projects/list": []}, (), "Ask an admin of a project to add ann"),
    ],
)
def test_what_is_missing_is_said(
    bare: Dstack, server: Plane, answers: dict[str, Any], args: tuple[str, ...], message: str
) -> None:
    server.answers |= answers
    ended = login(bare, server, *args)
    assert ended.code == 1 and message in ended.err and not load_projects(config_path(bare.terminal.home))


@pytest.mark.parametrize(
    ("args", "answers", "default"),
    [((), "y\n", "main"), ((), "n\n", "own"), (("-y",), "", "main"), (("-n",), "", "own")],
)
def test_another_default_is_left_unless_that_is_wanted(
    bare: Dstack, server: Plane, args: tuple[str, ...], answers: str, default: str
) -> None:
    server.answers["/api/projects/own/get"] = {"project_id": "1"}
    assert bare("project", "add", "--name", "own", "--url", server.url, "--token", "t").code == 0
    assert login(bare, server, *args, answers=answers).code == 0
    found = default_of(load_projects(config_path(bare.terminal.home)))
    assert found is not None and found.name == default


def test_without_an_address_the_default_server_is_meant(dstack: Dstack, server: Plane) -> None:
    browse = visiting(server, {"state": "s", "code": "c"})
    assert Dstack(replace(dstack.terminal, browse=browse), [])("login").code == 0
    assert json.dumps([each.path for each in server.requests]).count("/api/auth/") == 3


def test_without_any_server_it_asks_which(bare: Dstack) -> None:
    ended = bare("login")
    assert ended.code == 1 and "--url" in ended.err


def test_a_browser_that_connects_ahead_and_says_nothing_doesnt_keep_its_user_waiting(
    bare: Dstack, server: Plane
) -> None:
    idle: list[socket.socket] = []
    come_back = visiting(server, {"state": "s", "code": "c"})

    def browse(address: str) -> None:
        idle.append(socket.create_connection(("127.0.0.1", requested_port(server))))
        come_back(address)

    ended = login(bare, server, browse=browse)
    idle.pop().close()
    assert ended.code == 0, ended.err

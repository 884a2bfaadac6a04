"""`dstack login --oidc`: with whichever token the place has, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from cli.connection.config import ProjectEntry, config_path, default_of, load_projects, save_projects
from tests.cli.conftest import Dstack
from tests.cli.people import TOKENS
from tests.cli.plane import Plane

GRANTED = {"username": "ci", "token": "dstack_granted", "access_token": {**TOKENS[0], "name": "train/1"}}


@pytest.fixture
def server(plane: Plane) -> Plane:
    plane.answers |= {"/api/auth/oidc/exchange": GRANTED, "/token": {"value": "of-github"}}
    return plane


def shown(server: Plane) -> list[Any]:
    return [each.body["id_token"] for each in server.requests if each.path == "/api/auth/oidc/exchange"]


def login(dstack: Dstack, server: Plane, *args: str, **more: Any) -> Any:
    return dstack("login", "--url", server.url, "--oidc", *args, **more)


def test_what_is_granted_is_said_and_saved(bare: Dstack, server: Plane) -> None:
    ended = login(bare, server, env={"DSTACK_ID_TOKEN": "of-gitlab\n"})
    assert ended.code == 0 and shown(server) == ["of-gitlab"]
    assert f"You are ci at {server.url}, and may read, run until " in ended.out
    found = load_projects(config_path(bare.terminal.home))
    assert [(each.name, each.token) for each in found] == [
        (name, "dstack_granted") for name in ("research", "training")
    ]
    assert default_of(found) == found[0] and "of-gitlab" not in ended.out + ended.err


def test_a_file_or_standard_input_comes_first(bare: Dstack, server: Plane) -> None:
    (bare.terminal.cwd / "token").write_text("of-a-file\n")
    env = {"DSTACK_ID_TOKEN": "of-gitlab"}
    assert login(bare, server, "--id-token-file", "token", env=env).code == 0
    assert login(bare, server, "--id-token-file", "-", answers="typed\n").code == 0
    assert shown(server) == ["of-a-file", "typed"]


def test_github_is_asked_for_one_for_this_server_or_the_audience_that_is_named(bare: Dstack, server: Plane) -> None:
    asked: list[str] = []

    def answer(recorded: Any) -> tuple[int, Any]:
        path = recorded.path
        if path.startswith("/token?"):
            asked.append(path)
            assert recorded.headers["Authorization"] == "Bearer of-the-job"
            return 200, {"value": f"of-github-{len(asked)}"}
        return 200, GRANTED

    server.answer = lambda recorded: (server.requests.append(recorded), answer(recorded))[1]  # type: ignore[method-assign]
    address = {"ACTIONS_ID_TOKEN_REQUEST_URL": f"{server.url}/token?api-version=2.0"}
    env = {**address, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-job"}
    assert login(bare, server, env=env).code == 0
    assert login(bare, server, "--audience", "https://gpu.example.com", env=env).code == 0
    assert asked == [
        "/token?api-version=2.0&audience=http%3A%2F%2F127.0.0.1%3A30000",
        "/token?api-version=2.0&audience=https%3A%2F%2Fgpu.example.com",
    ]
    assert shown(server) == ["of-github-1", "of-github-2"]


@pytest.mark.parametrize(
    ("args", "env", "why"),
    [
        ((), {}, "There is no token of the place where this runs"),
        ((), {"DSTACK_ID_TOKEN": " \n"}, "DSTACK_ID_TOKEN contains no token"),
        ((), {"DSTACK_ID_TOKEN": "two words"}, "DSTACK_ID_TOKEN contains no token"),
        (("--id-token-file", "missing"), {}, "missing can't be read"),
        (
            (),
            {"ACTIONS_ID_TOKEN_REQUEST_URL": "http://ci.example.com/t", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "t"},
            "isn't an https address",
        ),
    ],
)
def test_without_a_token_nothing_is_sent(
    bare: Dstack, server: Plane, args: tuple[str, ...], env: dict[str, str], why: str
) -> None:
    ended = login(bare, server, *args, env=env)
    assert ended.code == 1 and why in " ".join(ended.err.split()) and server.requests == []


@pytest.mark.parametrize("args", [("--oidc", "-p", "corp"), ("--oidc", "--device"), ("--audience", "x")])
def test_flags_that_contradict_each_other_are_refused(bare: Dstack, server: Plane, args: tuple[str, ...]) -> None:
    assert bare("login", "--url", server.url, *args).code == 2 and server.requests == []


def test_the_default_stays_where_somebody_says_so(bare: Dstack, server: Plane) -> None:
    save_projects(config_path(bare.terminal.home), [ProjectEntry("mine", server.url, "t", True)])
    assert login(bare, server, "-n", env={"DSTACK_ID_TOKEN": "t"}).code == 0
    now = default_of(load_projects(config_path(bare.terminal.home)))
    assert now is not None and now.name == "mine"

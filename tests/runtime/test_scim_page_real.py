"""docs/operate/scim.md: its commands are run on a server with its configuration."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.api.scim import LONGEST_PAGE, MOST_OPERATIONS
from chalicelib.domain.directory import MOST_MEMBERS
from tests.harness.server import ROOT, HttpError, Server

PAGE = (ROOT / "docs/operate/scim.md").read_text(encoding="utf-8")
MAKE, REPLACE, CHECK = (block.splitlines() for block in re.findall(r"```shell\n(.*?)```", PAGE, re.DOTALL))
(CONFIG,) = re.findall(r"```yaml config.yml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "home", flags=("--no-local-fleet",))
    one.data.mkdir(mode=0o700, parents=True)
    (one.data / "config.yml").write_text(CONFIG)
    try:
        yield one.start()
    finally:
        one.close()


def printed(server: Server, line: str) -> str:
    program, *args = shlex.split(line)
    assert program == "dstack"
    return server.cli(*args)


def checked(server: Server, token: str) -> Any:
    (line,) = CHECK
    env = {"SCIM_TOKEN": token, "URL": server.url, "PATH": "/usr/bin:/bin"}
    return json.loads(subprocess.run(["sh", "-c", line], env=env, capture_output=True, check=True).stdout)


def test_the_pages_commands_let_a_directory_in_and_out(server: Server) -> None:
    first = printed(server, MAKE[0]).split()[0]
    assert "okta" in printed(server, MAKE[1])
    assert checked(server, first)["totalResults"] == 1
    assert printed(server, REPLACE[0]).split()[0] != first
    printed(server, REPLACE[1])
    assert checked(server, first)["status"] == "401"
    with pytest.raises(HttpError):
        server.call("/scim/v2/Users", token=first, method="GET")


def test_a_group_of_the_pages_configuration_gives_its_role(server: Server) -> None:
    token = printed(server, MAKE[0]).split()[0]
    ana = server.call("/scim/v2/Users", {"userName": "ana@example.com"}, token=token)
    server.call("/scim/v2/Groups", {"displayName": "research", "members": [{"value": ana["id"]}]}, token=token)
    members = server.call("/api/projects/main/get")["members"]
    assert ("ana", "manager") in {(each["user"]["username"], each["project_role"]) for each in members}


def test_its_numbers_are_the_codes() -> None:
    assert f"has at most {MOST_MEMBERS:,} members" in PAGE
    assert f"at most {LONGEST_PAGE} resources, a patch at most {MOST_OPERATIONS} operations" in PAGE

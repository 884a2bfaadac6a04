"""The admin's token, given so that nobody reads it in the process list; and where the project is entered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.connection.config import ProjectEntry, config_path, load_projects, save_projects
from tests.cli.conftest import Dstack
from tests.harness import forks
from tests.harness.server import PATIENCE, ROOT


def start(home: Path, *flags: str, given: str = "") -> tuple[list[str], str]:
    """What a server says until it is up, on both its outputs."""
    home.mkdir(exist_ok=True)
    words = ["server", "--port", "0", "--no-local-fleet", *flags]
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    with (home / "typed").open("w+") as typed, (home / "errors").open("w+") as errors:
        typed.write(given)
        typed.seek(0)
        process = forks.fork(words, ROOT, env, typed=typed, errors=errors)
        lines: list[str] = []
        with process.stdout as said:
            while not any("config.yml" in line for line in lines):
                line = said.readline()
                assert line, (home / "errors").read_text()
                lines.append(line)
            process.terminate()
            said.read()
        process.wait(PATIENCE)
    return lines, (home / "errors").read_text()


def test_a_token_from_standard_input(tmp_path: Path) -> None:
    lines, errors = start(tmp_path / "home", "--token", "-", given="from-standard-input\nmore\n")
    assert "The admin token is from-standard-input\n" in lines and "process list" not in errors
    (entry,) = load_projects(config_path(tmp_path / "home"))
    assert entry.token == "from-standard-input"


def test_a_token_on_the_command_line_is_warned_of(tmp_path: Path) -> None:
    _, errors = start(tmp_path / "home", "--token", "seen-by-all")
    assert "process list" in errors and "DSTACK_SERVER_ADMIN_TOKEN" in errors and "seen-by-all" not in errors


@pytest.mark.parametrize(("flag", "stays"), [("-y", False), ("-n", True), ("", True)])
def test_whether_another_servers_entry_is_replaced(tmp_path: Path, flag: str, stays: bool) -> None:
    path = config_path(tmp_path / "home")
    elsewhere = ProjectEntry("main", "https://elsewhere.example", "precious", default=True)
    save_projects(path, [elsewhere])
    start(tmp_path / "home", *flag.split())
    assert (load_projects(path) == [elsewhere]) is stays


def test_nothing_on_standard_input_is_said(bare: Dstack) -> None:
    for command in ("server --token -", "project add --name x --url http://127.0.0.1:1 --token -"):
        ended = bare(*command.split())
        assert ended.code == 1 and "nothing on standard input" in ended.err, ended

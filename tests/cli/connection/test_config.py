"""`~/.dstack/config.yml`, and the server that a command uses."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from chalicelib.errors import DstackError, Invalid, Refused
from cli.connection.config import (
    Endpoint,
    ProjectEntry,
    config_path,
    load_projects,
    resolve_endpoint,
    save_projects,
    set_default_project,
    with_project,
)
from tests.cli.conftest import Dstack

MAIN = ProjectEntry("main", "http://a", "t1", True)
LAB = ProjectEntry("lab", "http://b", "t2")


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / ".dstack" / "config.yml"
    save_projects(path, [MAIN, LAB])
    assert load_projects(path) == [MAIN, LAB]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["config.yml"]


def test_keys_of_others_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_text("other: 1\nprojects:\n- {name: main, url: http://a, token: t1, default: true, extra: x}\n")
    save_projects(path, with_project(load_projects(path), LAB))
    document = yaml.safe_load(path.read_text())
    assert document["other"] == 1
    assert document["projects"][0]["extra"] == "x" and document["projects"][1]["name"] == "lab"


def test_a_symlink_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yml", tmp_path / "config.yml"
    real.write_text("projects: []\n")
    link.symlink_to(real)
    save_projects(link, [MAIN])
    assert link.is_symlink() and load_projects(real) == [MAIN]


def test_the_first_project_is_the_default_and_there_is_only_one() -> None:
    one = with_project([], ProjectEntry("main", "http://a", "t"))
    assert one[0].default
    two = with_project(one, ProjectEntry("lab", "http://b", "t", True))
    assert [(p.name, p.default) for p in two] == [("main", False), ("lab", True)]
    again = with_project(two, ProjectEntry("lab", "http://c", "t"))
    assert [(p.name, p.url, p.default) for p in again] == [("main", "http://a", False), ("lab", "http://c", True)]


def test_a_server_enters_its_project(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    save_projects(path, [LAB])
    set_default_project(path, "main", "http://127.0.0.1:3000/", "tok")
    assert load_projects(path)[1] == ProjectEntry("main", "http://127.0.0.1:3000", "tok", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("projects: {", "not YAML"),
        ("- a", "should hold a list"),
        ("projects: 5", "should hold a list"),
        ("projects:\n- {name: main}", "lacks its name, url or token"),
    ],
)
def test_a_broken_file_is_said_so(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yml"
    path.write_text(text)
    with pytest.raises(DstackError, match=message):
        load_projects(path)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises((Refused, Invalid)):
        load_projects(path)


@pytest.mark.parametrize(
    ("env", "flag", "want"),
    [
        ({}, None, Endpoint("http://a", "t1", "main")),
        ({}, "lab", Endpoint("http://b", "t2", "lab")),
        ({"DSTACK_PROJECT": "lab"}, None, Endpoint("http://b", "t2", "lab")),
        ({"DSTACK_PROJECT": "lab"}, "main", Endpoint("http://a", "t1", "main")),
        ({"DSTACK_TOKEN": "mine"}, None, Endpoint("http://a", "mine", "main")),
        ({"DSTACK_SERVER_URL": "http://c"}, None, Endpoint("http://a", "t1", "main")),
        (
            {"DSTACK_SERVER_URL": "http://c/", "DSTACK_TOKEN": "mine", "DSTACK_PROJECT": "x"},
            None,
            Endpoint("http://c", "mine", "x"),
        ),
    ],
)
def test_whom_a_command_speaks_to(bare: Dstack, env: dict[str, str], flag: str | None, want: Endpoint) -> None:
    save_projects(config_path(bare.terminal.home), [MAIN, LAB])
    assert resolve_endpoint(env, bare.terminal.home, flag) == want


@pytest.mark.parametrize(
    ("projects", "env", "flag", "message"),
    [
        ([], {}, None, "dstack project add"),
        ([MAIN], {}, "nope", "Projects here: main"),
        ([LAB], {}, None, "set-default"),
        ([], {"DSTACK_SERVER_URL": "http://c"}, None, "Set DSTACK_TOKEN"),
        ([], {"DSTACK_SERVER_URL": "http://c", "DSTACK_TOKEN": "t"}, None, "DSTACK_PROJECT"),
    ],
)
def test_when_nobody_is_meant(bare: Dstack, projects: Any, env: dict[str, str], flag: str | None, message: str) -> None:
    if projects:
        save_projects(config_path(bare.terminal.home), projects)
    with pytest.raises(Refused, match=message):
        resolve_endpoint(env, bare.terminal.home, flag)

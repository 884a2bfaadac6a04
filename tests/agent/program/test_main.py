"""The agent's command line, as far as it can be asked in this process."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from pathlib import Path

import pytest

from chalicelib.agent import VERSION
from chalicelib.agent.kernel.tasks import TaskFolder, tidy
from chalicelib.agent.program import main
from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.agent.runtimes.process import ProcessRuntime
from tests.agent import docker_engine


def options(*arguments: str) -> argparse.Namespace:
    return main.make_parser().parse_args(arguments)


def test_what_is_assumed_where_nothing_is_said() -> None:
    assert vars(options()) == {
        "command": "run",
        "server": None,
        "data": None,
        "instance": None,
        "token_file": None,
        "runtime": "auto",
        "inside": False,
        "docker_socket": "/var/run/docker.sock",
        "users": "61000-61999",
        "unit": None,
        "force": False,
        "notices": None,
        "wait": 25.0,
    }
    assert options("facts", "--wait", "5").wait == 5.0


def test_the_version_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["agent", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("chalicelib.agent", run_name="__main__")
    assert (ended.value.code, capsys.readouterr().out) == (0, f"{VERSION}\n")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--data", "/d"], ["--instance", "i"], ["--runtime", "vm"], ["paint"], ["facts", "--users", "1-2"]],
)
def test_what_is_missing_or_wrong_is_explained(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2 and "usage: agent" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("--runtime", "vm"), ("--notices", "mars"), ("--users", "1-2"), ("--wait", "soon"), ("paint",)]
)
def test_a_word_that_is_none_of_those_is_named(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(*arguments)
    assert arguments[-1] in capsys.readouterr().err


def test_a_machine_that_has_no_agent_is_clear(tmp_path: Path) -> None:
    assert main.main(["clear", "--data", str(tmp_path / "none")]) == 0


def test_facts_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["facts", "--data", str(tmp_path), "--runtime", "process"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["runtimes"] == ["process"] and facts["cpus"] >= 1


def test_the_first_start_needs_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--data", str(tmp_path / "d"), "--instance", "i", "--runtime", "process"])
    assert "--server is needed the first time" in capsys.readouterr().err
    assert (tmp_path / "d/instance").read_text() == "i\n"
    assert (tmp_path / "d/tasks").stat().st_mode & 0o777 == 0o700, "nobody else looks in"
    assert main.main(["--data", str(tmp_path / "d"), "--instance", "j"]) == main.FOLDER_IN_USE == 3
    assert "belongs to instance i, not j" in capsys.readouterr().err


def test_docker_is_used_where_it_answers(tmp_path: Path) -> None:
    with docker_engine.running(tmp_path) as engine:
        there = ["--docker-socket", engine.socket]
        assert sorted(main.runtimes("/d", options(*there))) == ["docker", "process"]
        assert sorted(main.runtimes("/d", options("--runtime", "docker", *there))) == ["docker"]
    assert sorted(main.runtimes("/d", options(*there))) == ["process"]
    with pytest.raises(SystemExit, match="Docker engine at"):
        main.runtimes("/d", options("--runtime", "docker", *there))


def test_each_runtime_by_its_name() -> None:
    assert isinstance(main.make_runtime("docker", "/d", "/s", "agent"), DockerRuntime)
    assert isinstance(main.make_runtime("process", "/d", "/s", "agent"), ProcessRuntime)


@pytest.mark.slow
def test_a_signal_to_the_group_of_whoever_started_it_isnt_its_own() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for _ in range(2):  # then it leads a group, as what a shell starts does
                main.leave_group()
                os.write(writer, b"%d " % (os.getpgrp() == os.getpid()))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "1 1 "


def test_what_is_kept_is_written_only_when_it_changes(tmp_path: Path) -> None:
    main.store(str(tmp_path), "server", "http://one")
    file = tmp_path / "server"
    first = file.stat()
    assert (file.read_text(), first.st_mode & 0o777) == ("http://one\n", 0o600)
    main.store(str(tmp_path), "server", "http://one")
    assert file.stat().st_ino == first.st_ino
    main.store(str(tmp_path), "server", "http://two")
    assert file.read_text() == "http://two\n"


def test_a_start_deletes_what_earlier_agents_left(tmp_path: Path) -> None:
    data, own, old = str(tmp_path), tmp_path / "program-b", tmp_path / "program-a"
    for folder in (own, old, tmp_path / "trash" / "one.7", tmp_path / "tasks"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    tidy(data, lambda: str(own))
    assert not (tmp_path / "trash").exists() and old.exists(), "a supervisor may still run it"
    (tmp_path / "tasks" / "file").unlink()
    TaskFolder(data, "one").create({})
    tidy(data, lambda: str(own))
    assert old.exists()
    TaskFolder(data, "one").delete()
    tidy(data, lambda: str(own))
    assert not old.exists() and (own / "file").exists()

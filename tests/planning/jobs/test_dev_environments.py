"""A dev environment is a job that prepares, tells how to connect, and stays until it is stopped.

Its script is run here by a real shell, with stand-ins for what it would wait for or download from.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.runs.field_support import refusals
from tests.planning.runs.test_run import World
from tests.planning.shells import SHELLS, execute, placed, sent
from tests.world import nouns as b

COMMIT = "8951cd3ad688e789573d7f51750d67ae4a0bea7d"
PATH = "/usr/bin:/bin"
CONNECT = "Connect to this dev environment while attached: ssh work"


def spec(**configuration: Any) -> RunSpec:
    return RunSpec.model_validate({"run_name": "work", "configuration": {"type": "dev-environment", **configuration}})


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs that come first: the job's last command returns, and nothing is downloaded."""
    tool(tmp_path / "bin", "tail", "echo tail $@")
    for name in ("curl", "wget"):
        tool(tmp_path / "bin", name, "exit 7")
    return tmp_path / "bin"


def printed(run: RunSpec, tools: Path, status: int = 0) -> list[str]:
    """The lines of its job."""
    found = execute(sent(run), tools.parent, PATH=f"{tools}:{PATH}", DSTACK_WORKING_DIR="/work")
    assert found.status == status
    return found.lines


@pytest.mark.parametrize(
    ("ide", "name", "link"),
    [
        ("vscode", "VS Code", "vscode://vscode-remote/ssh-remote+work/work"),
        ("cursor", "Cursor", "cursor://vscode-remote/ssh-remote+work/work"),
        ("windsurf", "Windsurf", "windsurf://vscode-remote/ssh-remote+work/work"),
        ("zed", "Zed", "zed://ssh/work/work"),
    ],
)
def test_it_prints_the_link_of_its_editor(ide: str, name: str, link: str, tools: Path) -> None:
    output = printed(spec(ide=ide, image="busybox"), tools)
    assert output == [CONNECT, f"Open it in {name}:", f"  {link}", "tail -f /dev/null"]


def test_without_an_editor_it_tells_only_how_to_log_in(tools: Path) -> None:
    assert printed(spec(), tools) == [CONNECT, "tail -f /dev/null"]


def test_its_init_commands_come_first_and_must_succeed(tools: Path) -> None:
    assert printed(spec(init=["echo one", "echo two"]), tools)[:2] == ["one", "two"]
    assert printed(spec(init=["echo one", "false", "echo two"]), tools, status=1) == ["one"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_of_its_init_commands_runs_whole(shell: str, tools: Path, tmp_path: Path) -> None:
    def lines(*init: str, status: int = 0) -> list[str]:
        return printed(spec(ide="vscode", image="x", shell=placed(shell, tmp_path), init=init), tools, status)

    stays = "tail() { :; }"  # a busybox has its own
    assert lines(stays, "echo a\necho b   # the tools\n")[:3] == ["a", "b", CONNECT]
    assert lines("sh -c 'exit 1'", "echo a;\necho b  \n", status=1) == []


def test_the_end_of_its_init_is_told_by_name(tools: Path, tmp_path: Path) -> None:
    run = spec(ide="vscode", version=COMMIT, init=["echo one", "false"])
    found = execute(sent(run), tmp_path, PATH=f"{tools}:{PATH}")
    assert (found.status, found.step) == (1, "command 2 (`false`)")


@pytest.mark.parametrize("shell", ["bash", "dash"])  # busybox has a `tail` inside
def test_an_image_need_not_have_tail(shell: str, tmp_path: Path) -> None:
    run = spec(image="x", shell=placed(shell, tmp_path))
    found = execute(sent(run), tmp_path, typed=b"a line\n\x04", PATH=str(tmp_path / "nothing"))
    assert (found.status, found.lines[-1]) == (0, CONNECT), "it waits for the terminal's end"


@pytest.mark.parametrize("downloader", ["curl", "wget"])
def test_the_server_of_the_users_version_is_prepared(downloader: str, tools: Path, tmp_path: Path) -> None:
    (tmp_path / "server" / "bin").mkdir(parents=True)
    (tmp_path / "server" / "bin" / "code-server").write_text("x")
    with tarfile.open(tmp_path / "server.tgz", "w:gz") as archive:
        archive.add(tmp_path / "server", "vscode-server-linux-x64")
    tool(tools, downloader, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/server.tgz')
    output = printed(spec(ide="vscode", version=COMMIT, init=["echo init"]), tools)
    assert output[0] == "init", "nothing is told of what went well"
    assert (tmp_path / ".vscode-server" / "bin" / COMMIT / "bin" / "code-server").read_text() == "x"
    arguments = (tmp_path / "asked").read_text()
    assert f"https://update.code.visualstudio.com/commit:{COMMIT}/server-linux-" in arguments
    tool(tools, downloader, "echo downloaded again >&2; exit 1")
    assert printed(spec(ide="vscode", version=COMMIT), tools)[0].startswith("Connect")


def test_a_server_that_cant_be_downloaded_is_no_obstacle(tools: Path, tmp_path: Path) -> None:
    output = printed(spec(ide="windsurf", version="1.106.0@8951cd3a", init=["echo init"]), tools)
    assert output[:2] == [
        "Windsurf 1.106.0@8951cd3a was not prepared here; it installs itself when you connect.",
        "init",
    ]
    assert list((tmp_path / ".windsurf-server" / "bin").iterdir()) == [], "no half a server"


@pytest.mark.parametrize("version", ["1; rm -rf /", "$(id)", "../../x", "a b"])
def test_a_version_is_never_a_command(version: str) -> None:
    problems = refusals(spec(ide="vscode", version=version))
    assert [problem.path for problem in problems] == ["configuration.version"]
    assert problems[0].hint == "write the commit that `code --version` prints"


def test_zed_brings_its_own_server() -> None:
    problems = refusals(spec(ide="zed", version="1"))
    assert [problem.message for problem in problems] == ["`version` doesn't apply to Zed, which brings its own server"]


def test_all_branches_are_cloned_for_somebody_who_works_on_the_code() -> None:
    assert b.job_spec(spec()).single_branch is False
    assert b.job_spec(b.run_spec()).single_branch is True


# --- inactivity_duration ----------------------------------------------------------------------------------------------


def work(limit: str | None = "2m", **job: Any) -> World:
    """A dev environment that has run for a minute."""
    made = World("running", **{"connections": 0, **job})
    made.spec = spec(ide="vscode", **({"inactivity_duration": limit} if limit else {}))
    made.now = b.NOW + b.MINUTE
    made.presence = b.presence_of(made.instance, last=made.now, promise=b.DAY)
    return made


def test_one_that_nobody_uses_ends() -> None:
    made = work()
    assert made.decide().next_wake == b.NOW + 2 * b.MINUTE, "counted from when it runs"
    made.now = b.NOW + 2 * b.MINUTE
    made.decide()
    assert (made.job.status, made.job.reason) == ("terminating", JobReason.inactivity_duration_exceeded)
    assert made.job.inactivity_secs == 120
    assert made.job.message == "no session for 120 s; its `inactivity_duration` is 120 s"
    made.job = made.job.with_(status=JobStatus.terminated, finished_at=made.now)
    made.decide()
    assert made.run.reason is RunReason.job_failed


def test_one_whose_agent_says_nothing_of_sessions_isnt_ended_for_having_none() -> None:
    made = work(connections=None)
    made.now = b.NOW + b.DAY
    made.presence = b.presence_of(made.instance, last=made.now)
    made.decide()
    assert made.job.status == "running"


def test_one_in_use_goes_on_for_as_long_as_it_is() -> None:
    made = work(connections=1)
    made.now = b.NOW + b.DAY
    made.presence = b.presence_of(made.instance, last=made.now)
    made.decide()
    assert made.job.status == "running"


def test_it_counts_from_the_end_of_the_last_session() -> None:
    made = work(connections=0, inactive_since=b.NOW + 10 * b.MINUTE)
    made.now = b.NOW + 11 * b.MINUTE
    assert made.decide().next_wake == b.NOW + 12 * b.MINUTE
    made.now = b.NOW + 12 * b.MINUTE
    made.decide()
    assert made.job.inactivity_secs == 120


def test_what_was_before_it_ran_doesnt_count() -> None:
    made = work(connections=0, inactive_since=b.NOW - b.DAY)
    made.decide()
    assert made.job.status == "running"


def test_a_silent_host_may_have_sessions() -> None:
    made = work()
    made.now = b.NOW + 3 * b.MINUTE
    made.presence = b.presence_of(made.instance, last=b.NOW)
    made.decide()
    assert made.job.status == "running"


@pytest.mark.parametrize("limit", [None, "off"])
def test_without_a_limit_it_stays(limit: str | None) -> None:
    made = work(limit)
    made.now = b.NOW + b.DAY
    made.presence = b.presence_of(made.instance, last=made.now)
    made.decide()
    assert made.job.status == "running"


def test_no_version_need_be_written() -> None:
    assert refusals(spec(ide="vscode")) == refusals(spec()) == []

"""Repositories in containers, on a real engine: cloned on the host, for images that have no git."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.runtimes.accounts import outside
from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.agent.runtimes.docker_client import container_name
from tests.agent import git_hosts
from tests.agent.git_hosts import Host
from tests.agent.runtime_conformance import Workshop, archive, kill_supervisor, sleepers
from tests.agent.runtimes.test_repositories_real import nothing_secret_is_left, repo, stuck_once
from tests.harness.docker import DockerEngine
from tests.harness.images import BUSYBOX
from tests.harness.server import until
from tests.wire.far import TOKEN


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with git_hosts.running() as host:
        yield host


@pytest.fixture
def workshop(
    tmp_path: Path, docker_engine: DockerEngine, host: Host, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workshop]:
    for name, value in host.far.variables.items():
        monkeypatch.setenv(name, value)
    runtime = DockerRuntime(str(tmp_path), docker_engine.socket)
    workshop = Workshop(tmp_path, runtime, docker_engine.socket, {"image": BUSYBOX})
    yield workshop
    workshop.end()


def output_of(workshop: Workshop, script: str, wanted: dict[str, Any], **spec: Any) -> list[str]:
    task = workshop.start(script, repo=wanted, **spec)
    state = workshop.exited(task)
    assert state.get("exit_status") == 0, (state, workshop.log(task))
    assert nothing_secret_is_left(workshop, task)
    return workshop.log(task).decode().split("\r\n")


def owners(listing: list[str]) -> set[tuple[str, ...]]:
    """The users and groups in the lines of `ls -lnA`."""
    return {tuple(line.split()[2:4]) for line in listing if len(line.split()) > 7}


def test_the_code_belongs_to_the_containers_user(workshop: Workshop, host: Host) -> None:
    script = "cat app/a.txt; >app/new; cd app; ls -lnA . .git dir; ls -lnd ."
    lines = output_of(workshop, script, repo(host.open), user={"username": "somebody"})
    assert lines[:3] == ["one", "two", "three"] and owners(lines) == {("1234", "1234")}


@pytest.mark.parametrize(
    ("user", "owner"),
    [
        (None, ("0", "0")),
        ({"uid": 4321}, ("4321", "0")),
        ({"uid": 1234}, ("1234", "1234")),
        ({"uid": 7, "groupname": "somebody"}, ("7", "1234")),
        ({"username": "somebody", "gid": 9}, ("1234", "9")),
    ],
)
def test_a_user_is_looked_up_in_the_image(workshop: Workshop, host: Host, user: Any, owner: tuple[str, str]) -> None:
    assert owners(output_of(workshop, "ls -lnA app", repo(host.open), user=user)) == {owner}


def test_an_image_that_works_in_its_root_works_elsewhere_with_code(workshop: Workshop, host: Host) -> None:
    script = "pwd; echo $DSTACK_WORKING_DIR $DSTACK_REPO_DIR; ls"
    assert output_of(workshop, script, repo(host.open, path="."))[:3] == [
        "/workflow",
        "/workflow /workflow",
        "a.txt  dir",
    ]


def test_a_private_repository_leaves_its_token_nowhere(workshop: Workshop, host: Host, code: Any) -> None:
    changed = code(host.patch("a.txt", "one\n2\nthree\n"))
    script = "cat app/a.txt app/.git/config; env; ls -lnA /tmp /root"
    lines = output_of(workshop, script, repo(host.closed, oauth_token=TOKEN, code=changed))
    assert lines[:3] == ["one", "2", "three"] and TOKEN not in "".join(lines)
    task = workshop.started[-1]
    assert not Path(outside(task)).exists() and not list((workshop.data / "tasks" / task).glob("repository*"))


def test_uploaded_code_is_the_users_too(workshop: Workshop, code: Any) -> None:
    given = code(archive({"./x.txt": b"x", "./d/y.txt": b"y"}))
    wanted = {"path": "/new/place", "if_exists": "error", "code": given}
    lines = output_of(workshop, "ls -lnA /new; ls -lnA /new/place/d", wanted, user={"username": "somebody"})
    assert owners(lines) == {("1234", "1234")} and lines[-2].endswith("y.txt")


@pytest.mark.parametrize("path", ["/etc", "/etc/passwd", "/bin"])
def test_what_the_image_has_is_left_alone(workshop: Workshop, host: Host, path: str) -> None:
    state = workshop.exited(workshop.start("true", repo=repo(host.closed, path=path, oauth_token=TOKEN)))
    assert state["reason"] == "executor_error" and f"repository: {path}" in state["message"]
    assert nothing_secret_is_left(workshop, workshop.started[-1])


def test_what_the_image_has_can_be_kept(workshop: Workshop, host: Host) -> None:
    wanted = repo(host.closed, path="/etc", if_exists="skip", oauth_token=TOKEN)
    assert "a.txt" not in " ".join(output_of(workshop, "ls /etc", wanted))


def test_an_empty_folder_of_the_image_is_filled(workshop: Workshop, host: Host) -> None:
    assert "a.txt" in " ".join(output_of(workshop, "ls /tmp", repo(host.open, path="/tmp")))


def test_a_user_that_the_image_hasnt_is_named(workshop: Workshop, host: Host) -> None:
    state = workshop.exited(workshop.start("true", repo=repo(host.open), user={"username": "nobody-here"}))
    assert "nobody-here" in state["message"]


def test_a_failure_is_the_reason_and_leaves_no_container(
    workshop: Workshop, host: Host, docker_engine: DockerEngine
) -> None:
    task = workshop.start("true", repo=repo(host.closed, oauth_token="wr0ng"))
    state = workshop.exited(task)
    assert "the stored token can't read it" in state["message"] and "wr0ng" not in state["message"]
    workshop.roster.remove(task)
    assert docker_engine.api.container(container_name(task)) is None and not Path(outside(task)).exists()


def test_a_key_reads_over_ssh(workshop: Workshop, host: Host) -> None:
    with git_hosts.sshd(host.bare) as server:
        lines = output_of(
            workshop, "ls -lnA app", repo(server.url, private_key=server.key), user={"username": "somebody"}
        )
    assert owners(lines) == {("1234", "1234")}


def test_a_killed_supervisor_leaves_no_credentials_behind(
    workshop: Workshop, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{stuck_once(host.root, '8644')}:{os.environ['PATH']}")
    task = workshop.start("true", repo=repo(host.closed, oauth_token=TOKEN))
    workshop.until(lambda: sleepers("8644"), task)
    kill_supervisor(workshop, task)
    assert Path(outside(task)).exists()
    workshop.roster.remove(task)
    assert not Path(outside(task)).exists()
    until("what was killed to go", lambda: not sleepers("8644"))

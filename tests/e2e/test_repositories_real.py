"""A run's repository from a user's checkout to the job, by both command lines, against a real server and real hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.agent import git_hosts
from tests.agent.git_hosts import Host, git
from tests.bench.measure import wait_local_host
from tests.e2e import peer as genuine
from tests.harness import forks
from tests.harness.server import PATIENCE, Server, until
from tests.wire.far import TOKEN

TASK = """type: task
name: {name}
fleets: [local]
commands:
  - cd "$DSTACK_REPO_DIR" && cat a.txt && git log --format=%s -1 | cat
  - git status --short | cat
  - test "$DSTACK_REPO_ID" != none && ! env | grep -q right.token
resources: {{cpu: 1.., memory: 0.1GB.., disk: 1GB..}}
repos:
  - {repo}
"""
Dstack = Callable[..., str]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with git_hosts.running() as host:
        yield host


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, host: Host) -> Iterator[Server]:
    env = {**host.far.variables, "DSTACK_AGENT_RUNTIME": "process"}
    one = Server(tmp_path_factory.mktemp("repositories") / "home", env=env)
    one.home.mkdir()
    try:
        one.start()
        wait_local_host(one)
        yield one
    finally:
        one.close()


@pytest.fixture(scope="module")
def users(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dstack]:
    """Each client as a function from words to what it prints; both act for the same user."""

    def ours(*words: str, cwd: Path, expect: int = 0) -> str:
        env = {**server.environment(), "COLUMNS": "300"}
        status, said = forks.run([*words], cwd, env, seconds=int(PATIENCE))
        assert status == expect, said
        return said

    found: dict[str, Dstack] = {"ours": ours}
    if not (genuine.VENV / "bin" / "dstack").exists():
        return found
    peer = genuine.joined(server, tmp_path_factory.mktemp("peer") / "home")
    return {**found, "genuine": lambda *words, cwd: peer.run(*words, cwd=cwd).text}


@pytest.fixture(params=["ours", "genuine"])
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dstack(client: str, users: dict[str, Dstack]) -> Dstack:
    if client not in users:
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    return users[client]


@pytest.fixture
def work(tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with uncommitted changes."""
    folder = tmp_path / "work"
    git(tmp_path, "clone", "-q", str(host.bare), str(folder))
    git(folder, "remote", "set-url", "origin", host.open)
    (folder / "a.txt").write_text("one\n2\nthree\n")
    (folder / "new.txt").write_text("new\n")
    return folder


def kept_by(server: Server) -> bytes:
    """All that is in its files."""
    found = []
    for path in server.home.rglob("*"):
        with suppress(FileNotFoundError):  # it is tidied up meanwhile
            if path.is_file():
                found.append(path.read_bytes())
    return b"".join(found)


def apply(dstack: Dstack, folder: Path, name: str, repo: str, *flags: str) -> str:
    (folder / "run.dstack.yml").write_text(TASK.format(name=name, repo=repo))
    return dstack("apply", "-y", "-d", "-f", "run.dstack.yml", *flags, cwd=folder)


def ended(server: Server, name: str) -> dict[str, Any]:
    def run_now() -> Any:
        run = server.call("/api/project/main/runs/get", {"run_name": name})
        return run if run["status"] in ("done", "failed", "terminated") else None

    return dict(until(f"{name} to end", run_now))


def log_of(server: Server, name: str, folder: Path) -> list[str]:
    found = server.cli("logs", name, cwd=folder).replace("\r", "").splitlines()
    return [line for line in found if line]


def done(server: Server, name: str, folder: Path) -> list[str]:
    run = ended(server, name)
    lines = log_of(server, name, folder)
    assert run["status"] == "done", (run["jobs"][0]["job_submissions"][-1], lines)
    return lines


def test_a_checkout_with_its_changes(server: Server, dstack: Dstack, client: str, work: Path) -> None:
    name = f"checkout-{client}"
    apply(dstack, work, name, "'.:app'")
    assert done(server, name, work) == ["one", "2", "three", "second", " M a.txt", "?? new.txt", "?? run.dstack.yml"]


def test_an_address(server: Server, dstack: Dstack, client: str, host: Host, tmp_path: Path) -> None:
    name = f"address-{client}"
    apply(dstack, tmp_path, name, f"{{url: '{host.open}', hash: {host.commits['first']}, path: code}}")
    assert done(server, name, tmp_path) == ["one", "two", "three", "first"]


def test_a_private_one_by_a_flag(server: Server, dstack: Dstack, client: str, host: Host, tmp_path: Path) -> None:
    name = f"private-{client}"
    apply(dstack, tmp_path, name, f"'{host.closed}'", "-t", TOKEN)
    assert done(server, name, tmp_path)[:3] == ["one", "two", "three"]
    kept = kept_by(server)
    assert b"right.token" in kept and TOKEN.encode() not in kept


def test_one_over_ssh_by_a_key(server: Server, dstack: Dstack, client: str, host: Host, tmp_path: Path) -> None:
    name = f"ssh-{client}"
    with git_hosts.sshd(host.bare) as sshd:
        (tmp_path / "key").write_text(sshd.key)
        (tmp_path / "key").chmod(0o600)
        apply(dstack, tmp_path, name, f"{{url: '{sshd.url}', path: app}}", "--git-identity", str(tmp_path / "key"))
        assert done(server, name, tmp_path)[:3] == ["one", "two", "three"]
    kept = kept_by(server)
    assert sshd.url.encode() in kept and sshd.key.splitlines()[2].encode() not in kept


def test_a_folder_that_is_no_checkout(server: Server, users: dict[str, Dstack], tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.txt").write_text("plain\n")
    text = TASK.format(name="plain", repo="'plain:app'").replace(" && git log --format=%s -1 | cat", "")
    (tmp_path / "run.dstack.yml").write_text(text.replace("  - git status --short | cat\n", ""))
    users["ours"]("apply", "-y", "-d", "-f", "run.dstack.yml", cwd=tmp_path)
    assert done(server, "plain", tmp_path) == ["plain"]


def test_a_failure_is_read_everywhere(server: Server, dstack: Dstack, client: str, host: Host, tmp_path: Path) -> None:
    """The commit was never pushed, which only the host finds out."""
    name, commit = f"unpushed-{client}", "f" * 40
    apply(dstack, tmp_path, name, f"{{url: '{host.open}', branch: main, hash: '{commit}'}}")
    run = ended(server, name)
    reason = f"it has no commit {commit} on the branch `main` (was it pushed?)"
    submission = run["jobs"][0]["job_submissions"][-1]
    assert submission["termination_reason"] == "executor_error" and reason in submission["termination_reason_message"]
    assert reason in server.cli("event", "--target-run", name)
    assert reason in server.cli("ps", "-a", "-v")


def test_apply_shows_the_reason_to_whoever_stays(server: Server, users: dict[str, Dstack], work: Path) -> None:
    (work / "full").mkdir()
    name = "occupied"
    text = TASK.format(name=name, repo="'.:/etc'")
    (work / "run.dstack.yml").write_text(text)
    shown = users["ours"]("apply", "-y", "-f", "run.dstack.yml", cwd=work, expect=1)
    assert "repository: /etc exists and isn't empty" in shown

"""Repositories against a real server, by both clients: what one leaves there, the other finds."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import forks
from tests.harness.server import PATIENCE, Server
from tests.wire.clients import PEER, shared
from tests.wire.far import CLOSED, TOKEN, Far

LOCKED = f"https://{CLOSED}/case/app.git"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("repos") / "home", ("--fake-cloud",))
    one.start()
    yield one
    one.close()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    root = tmp_path_factory.mktemp("far")
    subprocess.run(["git", "init", "-q", "--bare", root / "case" / "app.git"], check=True)
    with Far(root) as found:
        yield found


def dstack(client: str, server: Server, far: Far, folder: Path, *args: str) -> tuple[int, str]:
    """Its status and what it printed."""
    env = {**server.environment(), **far.variables, "no_proxy": "127.0.0.1", "COLUMNS": "300"}
    if client == "ours":
        return forks.run([*args], folder, env, seconds=int(PATIENCE))
    output = folder / "output"
    job = {"argv": args, "cwd": str(folder), "env": env, "input": None, "output": str(output)}
    return shared("peer").run(job), output.read_text()


@pytest.mark.parametrize(("first", "then"), [("ours", "peer"), ("peer", "ours")])
def test_what_one_client_leaves_there_the_other_finds(
    server: Server, far: Far, tmp_path: Path, first: str, then: str
) -> None:
    if not (PEER / "dstack").exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    address = LOCKED.replace("app", first)  # a separate repository for each order
    (far.server.root / "case" / f"{first}.git").symlink_to(far.server.root / "case" / "app.git")
    (tmp_path / ".dstack.yml").write_text("type: task\ncommands: [ls]\n")
    before = dstack(then, server, far, tmp_path, "apply", "-y", "-d", "-P", address)
    assert before[0] == 1, before
    known = dstack(first, server, far, tmp_path, "init", "-P", address, "-t", TOKEN)
    assert known[0] == 0, known
    found = dstack(then, server, far, tmp_path, "apply", "-y", "-d", "-P", address)
    assert found[0] == 0, found

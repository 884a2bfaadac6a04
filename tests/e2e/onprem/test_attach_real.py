"""Two jobs of one host behind a head node, of an image that nobody prepared, attached at once: over the head with a key
that is known there, and through the server with one that isn't."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.attach_journey import client
from tests.e2e.hosts.network import HEAD
from tests.e2e.hosts.spec import workers
from tests.e2e.onprem.lab import Lab, lab
from tests.e2e.peer import VENV, Peer
from tests.e2e.test_attach_real import DSTACK, Client, environment
from tests.harness.server import PATIENCE, until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("attach"), workers(1)) as one:
        one.apply({**one.fleet("lab", one.site.workers), "blocks": 2})
        yield one


def attached(site: Lab, folder: Path, *arguments: str) -> Client:
    return Client(site.server, folder, "attach", *arguments, program=[*site.server.prefix, *DSTACK])


def ssh(site: Lab, *arguments: str) -> str:
    line = [*site.server.prefix, "ssh", "-F", str(site.server.home / ".ssh" / "config"), *arguments]
    done = subprocess.run(
        line, env=environment(site.server), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_jobs_of_one_host_are_attached_at_once(site: Lab, tmp_path: Path) -> None:
    known = ("--ssh-identity", str(site.site.key.path))
    site.apply(site.task("one", "echo one is up; sleep 600", "lab", ports=["18471:80"]), "-d", *known)
    site.apply(site.task("two", "echo two is up; sleep 600", "lab", ports=["18472:80"]), "-d")
    until("both to run", lambda: site.server.cli("ps").count("running") == 2)
    with (
        contextlib.closing(attached(site, tmp_path, "one", "--logs", *known)) as one,
        contextlib.closing(attached(site, tmp_path, "two", "--logs")) as two,
    ):
        one.wait_for("ssh one\n")
        two.wait_for("ssh two\n")
        assert "over its head node" in one.shown and "through the server" in two.shown
        for name, client in (("one", one), ("two", two)):
            client.wait_for(f"{name} is up")
            assert ssh(site, name, "echo $DSTACK_RUN_NAME $(hostname); exit").split()[0] == name
        assert one.detach() == 0 and two.detach() == 0
    assert list((site.server.home / ".dstack" / "ssh" / "runs").iterdir()) == []
    site.server.cli("stop", "one", "two", "-y", "-x")


@pytest.fixture
def peer(site: Lab) -> Iterator[Peer]:
    """The genuine client of somebody whom the head node knows: it takes that key from the user's own configuration."""
    dstack = VENV / "bin" / "dstack"
    if not dstack.exists():
        pytest.skip("the genuine client isn't installed here; `make test` installs it into .venvs/peer")
    with tempfile.TemporaryDirectory() as folder:  # a short name, because it has its sockets there
        one = Peer(site.server, Path(folder))
        (one.home / ".ssh").mkdir()
        (one.home / ".ssh" / "config").write_text(f"Host {HEAD}\n  IdentityFile {site.site.key.path}\n")
        (one.home / ".dstack").mkdir()
        shutil.copy(site.server.home / ".dstack" / "config.yml", one.home / ".dstack")  # which the server wrote
        yield one


def test_the_genuine_client_attaches_through_the_head_node(site: Lab, peer: Peer) -> None:
    def inside(name: str, command: str) -> tuple[int, str]:
        config = str(peer.home / ".dstack" / "ssh" / "config")
        argv = [*site.server.prefix, "ssh", "-F", config, "-o", "BatchMode=yes", name, command]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stdout

    wait = "echo first line; until [ -e /tmp/go ]; do sleep 0.1; done; echo last line; exit 7"
    (peer.home / "applied.yml").write_text(json.dumps(site.task("applied", wait, "lab")))
    with client(peer, "apply", "-f", "applied.yml", "-y") as shown:
        shown.shows("first line")
        assert inside("applied", "echo $DSTACK_RUN_NAME; : > /tmp/go; exit 3") == (3, "applied\n")
        assert shown.end() == 1 and "last line" in shown.text and "Exited (7)" in shown.text

"""Where the repositories of these tests are: behind https at the hosts of `tests.wire.far`, and behind a real sshd.

The files are readable for everybody, because git runs as the user of a task.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.ports import free_port
from tests.wire.far import CLOSED, OPEN, Far

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
WHO = ["-c", "user.name=A", "-c", "user.email=a@example.com"]


def git(folder: Path, *arguments: str, given: bytes = b"") -> str:
    done = subprocess.run(["git", *WHO, *arguments], cwd=folder, env=GIT, input=given, capture_output=True, check=True)
    return done.stdout.decode().strip()


@dataclass
class Host:
    """A bare repository `app` with two commits on `main` and one on `side`, and a checkout to make more."""

    root: Path
    far: Far
    commits: dict[str, str] = field(default_factory=dict)

    open: str = f"https://{OPEN}/app.git"
    closed: str = f"https://{CLOSED}/app.git"

    def __post_init__(self) -> None:
        self.bare, self.work = self.root / "app.git", self.root / "work"
        git(self.root, "init", "-q", "--bare", "-b", "main", str(self.bare))
        git(self.root, "clone", "-q", str(self.bare), str(self.work))
        self.commit("first", "a.txt", "one\ntwo\nthree\n")
        self.commit("second", "dir/b.txt", "b\n")
        git(self.work, "push", "-q", "origin", "HEAD:main")
        git(self.work, "switch", "-q", "-c", "side")
        self.commit("side", "side.txt", "s\n")
        git(self.work, "push", "-q", "origin", "side")
        git(self.work, "switch", "-q", "main")

    def commit(self, name: str, path: str, text: str) -> str:
        (self.work / path).parent.mkdir(exist_ok=True)
        (self.work / path).write_text(text)
        git(self.work, "add", ".")
        git(self.work, "commit", "-q", "-m", name)
        self.commits[name] = git(self.work, "rev-parse", "HEAD")
        return self.commits[name]

    def patch(self, path: str, text: str) -> bytes:
        """The change of a file in the checkout, which stays as it was."""
        before = (self.work / path).read_text()
        (self.work / path).write_text(text)
        try:
            return (git(self.work, "diff", "--binary") + "\n").encode()
        finally:
            (self.work / path).write_text(before)


@contextlib.contextmanager
def running() -> Iterator[Host]:
    root = Path(tempfile.mkdtemp(prefix="git-"))
    root.chmod(0o755)
    try:
        with Far(root) as far:
            yield Host(root, far)
    finally:
        shutil.rmtree(root)


@dataclass
class Sshd:
    url: str
    key: str  # a private key that it lets in
    folder: Path
    port: int

    def new_host_key(self) -> None:
        """As if somebody else answered in its place: connections from now on see another key."""
        (self.folder / "host").unlink()
        keygen(self.folder / "host")


def keygen(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.read_text()


@contextlib.contextmanager
def sshd(repository: Path) -> Iterator[Sshd]:
    """A server of its own on loopback, for one key of root's."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
    if program is None or os.getuid() != 0:
        pytest.skip("needs sshd, and root to start it")
    folder, port = Path(tempfile.mkdtemp(prefix="sshd-", dir="/root")), free_port()
    Path("/run/sshd").mkdir(exist_ok=True)
    keygen(folder / "host")
    key = keygen(folder / "mine")
    (folder / "authorized").write_text((folder / "mine.pub").read_text())
    config = (
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PasswordAuthentication no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n"
        "KexAlgorithms curve25519-sha256\n"
    )
    (folder / "config").write_text(config)
    daemon = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
        yield Sshd(f"ssh://root@127.0.0.1:{port}{repository}", key, folder, port)
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder)

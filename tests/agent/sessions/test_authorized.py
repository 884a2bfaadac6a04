"""The keys of jobs in the authorized_keys of the user that people log in to a host as."""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chalicelib.agent.sessions import authorized

ANN, BOB = "ssh-ed25519 AAAAann", "ssh-rsa AAAAbob"
OWN = "# mine\nssh-ed25519 AAAAmine me@laptop\n"


@dataclass
class Host:
    """A host with one user, whose home is a folder of the test's."""

    home: Path

    def entry_of(self, name: str) -> pwd.struct_passwd:
        if name != "ubuntu":
            raise KeyError(name)
        return pwd.struct_passwd((name, "x", os.getuid(), os.getgid(), "", str(self.home), "/bin/sh"))

    @property
    def file(self) -> Path:
        return self.home / ".ssh/authorized_keys"

    def allow(self, keys: list[str], task: str, port: int, user: str = "ubuntu") -> None:
        authorized.allow(user, keys, task, port, self.entry_of)

    def withdraw(self, task: str, user: str = "ubuntu") -> None:
        authorized.withdraw(user, task, self.entry_of)

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_key_leads_to_its_jobs_port_and_nowhere_else(host: Host) -> None:
    host.allow([ANN + " ann@laptop"], "task-1", 2201)
    (line,) = host.lines()
    opens = 'permitopen="localhost:2201",permitopen="127.0.0.1:2201"'
    assert line.startswith(f'restrict,port-forwarding,permitlisten="localhost:1",{opens},command="')
    assert line.endswith(f"{ANN} dstack-jobs task-1=2201")
    file = host.file.stat()
    assert (stat.S_IMODE(file.st_mode), stat.S_IMODE((host.home / ".ssh").stat().st_mode)) == (0o600, 0o700)


def test_a_key_of_two_jobs_is_one_line_with_both_ports(host: Host) -> None:
    """A server goes by the first line that has the key."""
    host.allow([ANN], "one", 2201)
    host.allow([ANN, BOB], "two", 2202)
    assert [line.count("permitopen") for line in host.lines()] == [4, 2]
    host.withdraw("one")
    assert [line.count("permitopen") for line in host.lines()] == [2, 2] and "2201" not in "".join(host.lines())
    host.withdraw("two")
    assert not host.file.exists()


def test_what_its_owner_wrote_stays(host: Host) -> None:
    (host.home / ".ssh").mkdir()
    file = host.file
    file.write_text(OWN)
    file.chmod(0o644)
    host.allow([ANN], "one", 2201)
    assert file.read_text().startswith(OWN) and len(host.lines()) == 3
    host.withdraw("one")
    host.withdraw("one")
    assert file.read_text() == OWN and stat.S_IMODE(file.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    "own",
    ["ssh-ed25519 AAAA of\u2028ssh-ed25519 BBBB\x0c\x85\r\n", "# the dstack-jobs lines aren't mine\n", "\n\n# a\n"],
)
def test_its_owners_bytes_stay(host: Host, own: str) -> None:
    (host.home / ".ssh").mkdir()
    host.file.write_bytes(own.encode())
    host.allow([ANN], "one", 2201)
    assert host.file.read_bytes().startswith(own.encode())
    host.withdraw("one")
    assert host.file.read_bytes() == own.encode()


def test_a_user_who_has_deleted_the_folder_is_in_nobodys_way(host: Host) -> None:
    host.withdraw("one")
    assert not (host.home / ".ssh").exists()
    host.home.rmdir()
    host.withdraw("one")


@pytest.mark.parametrize("key", ["", "ssh-ed25519", 'command="sh" ssh-ed25519 AAAA', "a\nssh-ed25519", "# no key"])
def test_what_isnt_a_key_isnt_written(host: Host, key: str) -> None:
    host.allow([key], "one", 2201)
    assert not host.file.exists()


def test_a_link_isnt_followed(host: Host, tmp_path: Path) -> None:
    (host.home / ".ssh").mkdir()
    (tmp_path / "elsewhere").write_text("precious")
    host.file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        host.allow([ANN], "one", 2201)
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_a_pipe_in_its_place_holds_no_keys(host: Host) -> None:
    host.file.parent.mkdir()
    os.mkfifo(host.file)
    pipe = os.open(host.file, os.O_RDWR)
    try:
        host.withdraw("task-1")
        host.allow([ANN], "task-1", 2201)
    finally:
        os.close(pipe)
    assert host.file.is_file() and len(host.lines()) == 1


def test_an_unknown_user(host: Host) -> None:
    with pytest.raises(KeyError):
        host.allow([ANN], "one", 2201, user="nobody-here")
    host.withdraw("one", user="nobody-here")


# --- a lock that the user may take, too -------------------------------------------------------------------------------


@contextmanager
def locked(host: Host) -> Iterator[Callable[[], None]]:
    """The folder, locked by another process; and how that lets it go."""
    (host.home / ".ssh").mkdir(exist_ok=True)
    folder = os.open(host.home / ".ssh", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    yield lambda: fcntl.flock(folder, fcntl.LOCK_UN)
    os.close(folder)


def test_a_lock_is_waited_for(host: Host) -> None:
    with locked(host) as release:
        authorized.allow("ubuntu", [ANN], "task-1", 2201, host.entry_of, lambda _: release())
    assert len(host.lines()) == 1


def test_a_lock_that_is_kept_is_said_and_keeps_no_key_here(host: Host) -> None:
    host.allow([ANN], "task-1", 2201)
    waited: list[float] = []
    with locked(host):
        with pytest.raises(OSError, match=r"another process has locked .*/\.ssh for 5 s"):
            authorized.allow("ubuntu", [BOB], "task-2", 2202, host.entry_of, waited.append)
        assert sum(waited) == pytest.approx(5) and len(host.lines()) == 1
        authorized.withdraw("ubuntu", "task-1", host.entry_of, waited.append)
    assert sum(waited) == pytest.approx(10) and not host.file.exists()

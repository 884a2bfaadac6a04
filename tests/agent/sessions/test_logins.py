"""What is left around a job's SSH server: its lock, which others ask for, and its keys on the host."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest

from chalicelib.agent.kernel.tasks import TaskFolder, take_lock
from chalicelib.agent.runtimes import accounts
from chalicelib.agent.sessions import login_connections, logins, openssh
from tests.agent.desk import Runtime


def test_a_server_gets_its_lock_whoever_asks_at_that_moment_whether_it_lives(tmp_path: Path) -> None:
    path = str(tmp_path / "sessions.lock")
    lock = take_lock(path)
    assert lock is not None
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(lock)

    held = logins.patient_lock(path, pause)
    assert held is not None and len(pauses) == 3
    assert logins.patient_lock(path, pauses.append) is None, "a living server keeps it"
    os.close(held)


def test_programs_are_found_whatever_path_the_agent_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert openssh.program("sh").endswith("/sh")
    with pytest.raises(logins.NoServer, match="has no no-such-program"):
        openssh.program("no-such-program")


def test_what_sshd_says_tells_when_its_login_succeeded_and_when_all_of_it_has_ended() -> None:
    reader, sshd = os.pipe()
    os.set_blocking(reader, False)
    with socket.socket() as listener:
        connection = logins.LoginConnection(1, reader, logins.LoginPort(listener, "config", 1), "127.0.0.1")
    half = len(login_connections.ACCEPTED) // 2
    for line, accepted in (
        (b"hello\r\n", False),
        (login_connections.ACCEPTED[:half], False),
        (login_connections.ACCEPTED[half:], True),
    ):
        os.write(sshd, line)
        assert connection.read() is True and connection.accepted is accepted
    assert connection.read() is True, "it says nothing at the moment"
    os.write(sshd, b"x" * 10_000 + b"\r\nbye \xff\r\n")
    assert connection.read() is True and connection.accepted, "once it did, it did"
    assert connection.last_output().endswith("x / bye \ufffd") and len(connection.last_output()) <= 400
    os.close(sshd)
    assert connection.read() is False
    os.close(reader)


@pytest.mark.skipif(os.getuid() != 0, reason="only root lets job users in")
def test_removing_takes_the_keys_out_even_if_the_server_died_before_it_told_anything(tmp_path: Path) -> None:
    folder, taken = TaskFolder(str(tmp_path), "task-1"), []
    folder.create({"spec": {"host_user": "ubuntu", "authorized_keys": ["ssh-ed25519 AAAA"]}})
    assert logins.report(folder) == {}
    logins.remove(folder, lambda user, task: taken.append((user, task)))
    assert taken == [("ubuntu", "task-1")]


@pytest.mark.parametrize("host_user", [None, ""])
def test_removing_withdraws_nothing_where_no_keys_were_let_in(tmp_path: Path, host_user: str | None) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({"spec": {"host_user": host_user}} if host_user is not None else {})
    logins.remove(folder, lambda *_: pytest.fail("there is nothing to take out"))


def test_whether_a_server_lives_shows_in_its_lock(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({})
    lock = Path(folder.path) / "sessions.lock"
    assert logins.over(folder) and logins.process(folder) is None and not lock.exists(), "there never was one"
    held = take_lock(str(lock))
    assert held is not None
    assert not logins.over(folder) and logins.process(folder) is None, "it hasn't written its number yet"
    lock.write_text("4321\n")
    assert not logins.over(folder) and logins.process(folder) == 4321
    os.close(held)
    assert logins.over(folder) and logins.process(folder) is None, "the number may be another's by now"
    logins.end(folder)
    again = take_lock(str(lock))
    assert again is not None, "whoever asked holds it no longer"
    os.close(again)


def test_a_task_without_keys_has_no_server(tmp_path: Path) -> None:
    folder = TaskFolder(str(tmp_path), "t")
    folder.create({"spec": {"authorized_keys": []}})
    logins.begin(folder, Runtime("played")).settle()
    assert logins.over(folder) and logins.report(folder) == {}


def test_a_user_that_the_host_does_not_list_is_told_and_is_no_traceback() -> None:
    listed = {entry.pw_uid for entry in pwd.getpwall()}
    unlisted = next(uid for uid in range(54_321, 60_000) if uid not in listed)
    assert (accounts.listed_user(0), accounts.listed_user(unlisted)) == ("root", "")
    logins.check_listed(0)
    with pytest.raises(logins.NoServer, match=f"runs as uid {unlisted}, which isn't in its list of users; add it"):
        logins.check_listed(unlisted)


def test_a_fingerprint_that_comes_in_two_parts_is_read_whole() -> None:
    """Or nobody would know whose connection it is, and it would outlive its key."""
    print_ = "SHA256:" + "a" * 43
    line = f"Accepted publickey for root from 10.0.0.1 port 1 ssh2: ED25519 {print_}\r\n".encode()
    for cut in range(1, len(line)):
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with socket.socket() as listener:
            connection = logins.LoginConnection(1, reader, logins.LoginPort(listener, "config", 1), "127.0.0.1")
        for part in (line[:cut], line[cut:]):
            os.write(writer, part)
            assert connection.read()
            assert connection.fingerprint in ("", print_)
        os.close(writer), os.close(reader)
        assert connection.accepted and connection.fingerprint == print_

"""What a connection bears from a host that is against us: the login is a user's, and so is whatever answers."""

from __future__ import annotations

import contextlib
import socket
import threading

import paramiko
import pytest

from chalicelib.errors import Transient, Unfit
from chalicelib.hosts.connection import MOST_WAITING, HostLogin, SshLogins
from tests.harness.server import until
from tests.hosts.bad_host import KEY, bad_host

ANOTHER_KEY = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTY="


def answer_in_both_streams(channel: paramiko.Channel) -> None:
    channel.recv(1)  # the end of its input: its request has been answered
    channel.sendall(b"out")
    channel.sendall_stderr(b"err")
    channel.send_exit_status(3)
    channel.close()


def babbles(channel: paramiko.Channel) -> None:
    channel.recv(1)
    with contextlib.suppress(OSError, EOFError):
        while True:
            channel.sendall(b"x" * 65536)


def test_what_a_command_says_is_heard() -> None:
    with bad_host(answer_in_both_streams) as (login, _), SshLogins().connect(login) as connection:
        ran = connection.run("true")
    assert (ran.status, ran.out, ran.err) == (3, "out", "err")


def test_steps_that_follow_each_other_use_one_connection() -> None:
    with bad_host(answer_in_both_streams) as (login, made):
        ssh = SshLogins(keep_open=60.0)
        with ssh.connect(login, again=True) as connection:
            pinned = login.expecting(connection.shown)
        for again in (True, False):
            with ssh.connect(pinned, again=again) as connection:
                connection.run("true")
        until("the host's end", lambda: made)
        assert len(made) == 1 and not connection.transport.is_active(), "the last step closes it"
        with ssh.connect(login, again=True):
            until("a second login", lambda: len(made) == 2)
        with pytest.raises(Unfit, match="different host key"), ssh.connect(login.expecting([ANOTHER_KEY])):
            raise AssertionError("who must show another key is asked for it anew")


def test_a_connection_that_broke_or_failed_isnt_used_again() -> None:
    with bad_host(answer_in_both_streams) as (login, made):
        ssh = SshLogins(keep_open=60.0)
        with contextlib.suppress(Transient), ssh.connect(login, again=True):
            raise Transient("a step failed")
        with ssh.connect(login, again=True) as connection:
            until("a second login", lambda: len(made) == 2)
        connection.close()
        with ssh.connect(login):
            until("a third login", lambda: len(made) == 3)


def test_a_connection_is_kept_for_so_long_only() -> None:
    with bad_host(answer_in_both_streams) as (login, _):
        with SshLogins(keep_open=0.01).connect(login, again=True) as connection:
            pass
        until("it to be closed", lambda: not connection.transport.is_active())
        with SshLogins().connect(login, again=True) as connection:
            pass
        assert not connection.transport.is_active(), "unless it is to be kept"


def test_output_without_end_is_refused_and_not_kept() -> None:
    with (
        bad_host(babbles) as (login, _),
        SshLogins().connect(login) as connection,
        pytest.raises(Transient, match="wrote more than"),
    ):
        connection.run("true", timeout=120.0)


def test_a_host_that_never_answers_a_request_holds_nobody() -> None:
    with (
        bad_host(None) as (login, _),
        SshLogins().connect(login) as connection,
        pytest.raises(Transient, match="took longer than 1 s"),
    ):
        connection.run("true", timeout=1.0)


@pytest.mark.slow
def test_a_host_that_takes_no_input_holds_nobody() -> None:
    with (
        bad_host(lambda channel: None) as (login, _),
        SshLogins().connect(login) as connection,
        pytest.raises(Transient, match="took longer than 1 s"),
    ):
        connection.run("cat", stdin=b"x" * 16_000_000, timeout=1.0)


def test_the_words_of_another_service_arent_repeated() -> None:
    """A login may name any address that the server reaches."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"internal-7: x\r\n" * 200)
                accepted.recv(1)

        threading.Thread(target=greet, daemon=True).start()
        login = HostLogin("127.0.0.1", listener.getsockname()[1], "me", KEY)
        with pytest.raises(Transient, match="no SSH server greets there") as refused, SshLogins().connect(login):
            pass
    assert "internal" not in str(refused.value)


def greeting_with(key_exchange: str) -> bytes:
    """What an SSH server says first: its version, and the algorithms that it accepts."""
    ciphers, macs = ["aes128-ctr"] * 2, ["hmac-sha2-256"] * 2
    lists = [key_exchange, "ssh-ed25519", *ciphers, *macs, "none", "none", "", ""]
    payload = b"\x14" + bytes(16) + b"".join(len(each).to_bytes(4, "big") + each.encode() for each in lists) + bytes(5)
    padding = 4 + -(len(payload) + 9) % 8
    length = 1 + len(payload) + padding
    return b"SSH-2.0-strict\r\n" + length.to_bytes(4, "big") + bytes([padding]) + payload + bytes(padding)


@pytest.mark.parametrize("pinned", ["", ANOTHER_KEY], ids=["new", "known"])
def test_a_host_with_other_algorithms_is_told_what_to_allow(pinned: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(greeting_with("of-our-own@example.com"))
                while accepted.recv(1000):
                    continue

        threading.Thread(target=greet, daemon=True).start()
        login = HostLogin("127.0.0.1", listener.getsockname()[1], "me", KEY, pinned=pinned)
        with pytest.raises(Unfit, match=r"no acceptable kex algorithm.*sshd_config"), SshLogins().connect(login):
            pass


def test_calls_wait_for_whoever_takes_them() -> None:
    taken: list[paramiko.Channel] = []
    with bad_host(answer_in_both_streams) as (login, made), SshLogins().connect(login) as connection:
        assert connection.listen() == connection.port == 4321 and connection.listen() == 4321
        until("the host's end", lambda: made)
        for number in range(MOST_WAITING):
            channel = made[0].open_forwarded_tcpip_channel(("127.0.0.1", number), ("127.0.0.1", 4321))
            channel.sendall(b"call %d" % number)
        with contextlib.suppress(paramiko.SSHException):  # it may be closed before it is given to us
            refused = made[0].open_forwarded_tcpip_channel(("127.0.0.1", 98), ("127.0.0.1", 4321))
            assert refused.recv(1) == b"", "more than a few are refused"
        connection.calls_go_to(taken.append)
        assert [call.recv(10) for call in taken] == [b"call %d" % number for number in range(MOST_WAITING)]
        made[0].open_forwarded_tcpip_channel(("127.0.0.1", 99), ("127.0.0.1", 4321))
        until("the next to be taken at once", lambda: len(taken) == MOST_WAITING + 1)


def test_a_host_that_gives_no_port_is_told_how_to() -> None:
    with (
        bad_host(answer_in_both_streams, forwards=lambda port: 0) as (login, _),
        SshLogins().connect(login) as connection,
        pytest.raises(Transient, match=r"gives us no port .*AllowTcpForwarding yes"),
    ):
        connection.listen()

"""Sockets on the loopback of this machine's own network."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from chalicelib.agent.kernel import networks
from tests.harness.descriptors import descriptors, opened_since


def test_a_job_in_the_machines_own_network_holds_nothing() -> None:
    with networks.open_network(lambda: None) as network:
        assert network is None


@pytest.mark.slow
def test_a_network_is_held_while_it_is_used() -> None:
    before = descriptors()
    with networks.open_network(os.getpid) as network:
        assert network is not None and not os.get_inheritable(network)
        assert os.fstat(network).st_ino == Path("/proc/self/ns/net").stat().st_ino
    assert not any("net:[" in target for _, target in opened_since(before))


def test_a_job_that_ended_meanwhile_has_no_network() -> None:
    """Its number may be that of a process of the machine's by now."""
    before, answers = descriptors(), iter([os.getpid(), os.getppid()])
    with pytest.raises(ProcessLookupError, match="the job has ended"), networks.open_network(lambda: next(answers)):
        raise AssertionError("whoever has the number now isn't the job")
    assert not any("net:[" in target for _, target in opened_since(before))


def test_a_port_of_either_loopback_is_reached() -> None:
    with networks.listen(None, 0) as server, networks.connect(None, server.getsockname()[1]) as near:
        assert near.getpeername() == server.getsockname() and near.getsockname()[0] == "127.0.0.1"
        assert near.gettimeout() is None
    if Path("/proc/net/if_inet6").exists():
        with networks.listen(None, 0, "::1") as server, networks.connect(None, server.getsockname()[1]) as near:
            assert near.getpeername()[:2] == server.getsockname()[:2] and near.gettimeout() is None


def test_a_port_where_nothing_listens_refuses() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError) as caught:
            networks.connect(None, bound.getsockname()[1])
    assert caught.value.errno == errno.ECONNREFUSED


def test_a_port_that_is_taken_is_refused_and_one_that_was_just_left_isnt() -> None:
    with networks.listen(None, 0) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match="Address already in use") as caught:
            networks.listen(None, port)
        assert caught.value.errno == errno.EADDRINUSE
        with networks.connect(None, port) as near:
            call, _ = server.accept()
            call.close()
            assert near.recv(1) == b""
    with networks.listen(None, port) as again:
        assert again.getsockname() == ("127.0.0.1", port)

"""Logs, commands and ports of the fake's scripted pods, as the official client has them."""

from __future__ import annotations

import struct
import threading
import zlib
from typing import Any

import pytest

from chalicelib.domain.instants import SECOND
from tests.backends.clock import Clock
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.kubelet import Exit
from tests.backends.kubernetes.fake.scripted import Life
from tests.backends.kubernetes.fake.spdy import DICTIONARY, Data, Opened, Session, WrongFrame
from tests.backends.kubernetes.objects import pod

HERE = "default"


@pytest.fixture
def running(core: Any, cluster: Cluster) -> Any:
    cluster.scripted.life = lambda given, container: Life(log=b"one\ntwo\nthree\n")
    core.create_namespaced_pod(HERE, pod("a"))
    return core


def refusal(call: Any, *given: Any, **named: Any) -> Any:
    from kubernetes.client import ApiException

    with pytest.raises(ApiException) as caught:
        call(*given, **named)
    return caught.value


# --- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_is_as_long_as_asked(running: Any) -> None:
    assert running.read_namespaced_pod_log("a", HERE) == "one\ntwo\nthree\n"
    assert running.read_namespaced_pod_log("a", HERE, tail_lines=1) == "three\n"
    assert running.read_namespaced_pod_log("a", HERE, limit_bytes=5) == "one\nt"
    stamped = running.read_namespaced_pod_log("a", HERE, timestamps=True, tail_lines=1)
    assert stamped.endswith("Z three\n") and stamped.startswith("2026-")


def test_logs_that_there_are_not(core: Any, cluster: Cluster, clock: Clock) -> None:
    cluster.scripted.life = lambda given, container: Life(pulling=SECOND)
    core.create_namespaced_pod(HERE, pod("a"))
    early = refusal(core.read_namespaced_pod_log, "a", HERE)
    assert (
        early.status == 400
        and 'container "main" in pod "a" is waiting to start: ContainerCreating' in early.body.replace("\\", "")
    )
    assert (
        "container other is not valid for pod a"
        in refusal(core.read_namespaced_pod_log, "a", HERE, container="other").body
    )
    clock.passes(1)
    assert "previous terminated container" in refusal(core.read_namespaced_pod_log, "a", HERE, previous=True).body
    assert refusal(core.read_namespaced_pod_log, "b", HERE).status == 404


def test_a_log_that_is_followed_ends_with_its_container(running: Any, cluster: Cluster) -> None:
    followed = running.read_namespaced_pod_log("a", HERE, follow=True, _preload_content=False)
    pieces = followed.stream()
    assert next(pieces) == b"one\n"
    cluster.scripted.end(cluster.pod("a"), Exit(0))
    cluster.wake()
    assert b"".join(pieces) == b"two\nthree\n"


# --- commands --------------------------------------------------------------------------------------------------------


def run(core: Any, *command: str, stdin: bytes | None = None) -> tuple[bytes, bytes, int]:
    from kubernetes.stream import stream

    options = {"stdin": stdin is not None, "stdout": True, "stderr": True, "binary": True, "_preload_content": False}
    opened = stream(core.connect_get_namespaced_pod_exec, "a", HERE, command=list(command), **options)
    if stdin is not None:
        opened.write_stdin(stdin)
        opened.close_channel(0)
    opened.run_forever(timeout=120)
    return opened.read_channel(1), opened.read_channel(2), opened.returncode


def test_a_command_has_its_streams_and_its_status(running: Any, cluster: Cluster) -> None:
    cluster.scripted.commands = lambda name, container, command: command
    assert run(running, "sh", "-c", "cat; echo wrong >&2; exit 3", stdin=b"in" * 60_000) == (
        b"in" * 60_000,
        b"wrong\n",
        3,
    )
    assert run(running, "true") == (b"", b"", 0)


def test_commands_that_cannot_run(running: Any, cluster: Cluster, core: Any) -> None:
    assert "501" in str(refusal(run, running, "true"))  # nobody has said what runs
    cluster.scripted.commands = lambda name, container, command: command
    running.delete_namespaced_pod("a", HERE)
    assert "404" in str(refusal(run, running, "true"))
    running.create_namespaced_pod(HERE, pod("a", nodeSelector={"no": "where"}))
    assert "400" in str(refusal(run, running, "true"))
    assert refusal(core.connect_get_namespaced_pod_exec, "b", HERE).status == 404


# --- ports -----------------------------------------------------------------------------------------------------------


def test_a_port_is_a_socket(running: Any, cluster: Cluster, echo: int) -> None:
    from kubernetes.stream import portforward

    cluster.scripted.ports["a", 8000] = echo
    forwarded = portforward(running.connect_get_namespaced_pod_portforward, "a", HERE, ports="8000")
    sock = forwarded.socket(8000)
    sock.settimeout(120)
    sent = b"x" * 200_000
    threading.Thread(target=sock.sendall, args=(sent,), daemon=True).start()
    found = b""
    while len(found) < len(sent):
        found += sock.recv(65536)
    assert found == sent
    sock.close()


def test_a_port_that_nobody_listens_to(running: Any) -> None:
    from kubernetes.stream import portforward

    forwarded = portforward(running.connect_get_namespaced_pod_portforward, "a", HERE, ports="9")
    sock = forwarded.socket(9)
    sock.settimeout(120)
    assert sock.recv(1) == b""
    assert "error forwarding port 9" in forwarded.error(9)


def test_a_tunnels_frames_come_in_any_pieces() -> None:
    sent, deflate = list[bytes](), zlib.compressobj(zdict=DICTIONARY)
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2  # the specification's
    texts = [b"streamtype", b"data", b"port", b"8000"]
    plain = struct.pack("!I", 2) + b"".join(struct.pack("!I", len(each)) + each for each in texts)
    block = deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)
    opening = struct.pack("!IIIIH", 0x8003_0001, 10 + len(block), 5, 0, 0) + block
    ping, data = struct.pack("!III", 0x8003_0006, 4, 7), struct.pack("!II", 5, 1 << 24 | 2) + b"hi"
    session = Session(sent.append)
    found = [event for byte in opening + ping + data for event in session.take(bytes([byte]))]
    assert found == [Opened(5, {"streamtype": "data", "port": "8000"}, False), Data(5, b"hi", True)]
    assert sent[0].startswith(struct.pack("!I", 0x8003_0002)) and sent[1:] == [ping]
    with pytest.raises(WrongFrame, match="version 2"):
        list(session.take(struct.pack("!II", 0x8002_0001, 0)))

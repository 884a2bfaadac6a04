"""Logs, and commands in containers."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chalicelib.domain.instants import SECOND, iso
from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.schema import Object
from tests.backends.kubernetes.fake.websocket import CLOSING, Channels, Gone, handshake

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

IN, OUT, ERROR, STATUS, RESIZE = range(5)
PAUSE = 0.05  # of real time, between reads of a log that is followed
Query = Sequence[tuple[str, str]]
loads = json.loads


@dataclass
class Upgrade:
    """A connection that is no longer HTTP."""

    head: bytes
    serve: Callable[[socket.socket], None]


def _container(pod: Object, wanted: str) -> Object:
    containers: list[Object] = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    name, names = pod["metadata"]["name"], [each["name"] for each in pod["spec"]["containers"]]
    if not wanted and len(names) > 1:
        raise errors.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
    found = next((each for each in containers if each["name"] == (wanted or names[0])), None)
    if found is None:
        raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
    return found


def _state(pod: Object, container: str) -> Mapping[str, Any]:
    status = pod["status"]
    listed = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    found: Mapping[str, Any] = next((each["state"] for each in listed if each["name"] == container), {})
    return found


# --- logs ------------------------------------------------------------------------------------------------------------


def log(
    cluster: Cluster, pod: Object, query: Mapping[str, str], gone: Callable[[], bool]
) -> tuple[bool, Iterator[bytes]]:
    """Whether it's followed, and its pieces."""
    container = _container(pod, query.get("container", ""))["name"]
    name, state = pod["metadata"]["name"], _state(pod, container)
    if query.get("previous") == "true":
        raise errors.bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if "waiting" in state:
        why = state["waiting"]["reason"]
        raise errors.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {why}')
    for each in ("sinceTime", "stream"):
        if each in query:
            raise errors.not_implemented(f"logs with {each}")
    follows = query.get("follow") == "true"
    return follows, _pieces(cluster, pod, container, query, gone if follows else None)


def _pieces(
    cluster: Cluster, pod: Object, container: str, query: Mapping[str, str], gone: Callable[[], bool] | None
) -> Iterator[bytes]:
    since = cluster.now() - int(query["sinceSeconds"]) * SECOND if "sinceSeconds" in query else 0
    left = int(query.get("limitBytes") or 1 << 40)
    tail = int(query["tailLines"]) if "tailLines" in query else None
    seen = 0
    while True:
        with cluster.store.changed:
            cluster.settle()
            found = cluster.kubelet.runtime.log(pod, container)
            now = cluster.store.find("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        new, seen = found[seen:], len(found)
        new, tail = (new[len(new) - min(tail, len(new)) :], None) if tail is not None else (new, None)
        for at, line in new:
            if at < since:
                continue
            stamp = f"{iso(at)[:26]}Z ".encode() if query.get("timestamps") == "true" else b""
            piece = (stamp + line)[:left]
            left -= len(piece)
            if piece:
                yield piece
        ended = now is None or "running" not in _state(now, container)
        if gone is None or ended or gone() or cluster.closing:
            return
        time.sleep(PAUSE)


# --- commands --------------------------------------------------------------------------------------------------------


def execute(cluster: Cluster, pod: Object, query: Query, headers: Mapping[str, str]) -> Upgrade:
    container = _container(pod, dict(query).get("container", ""))["name"]
    protocol, head = agreed(headers, ("v5.channel.k8s.io", "v4.channel.k8s.io"))
    running(pod, container)
    if dict(query).get("tty") in ("true", "1", "True"):
        raise errors.not_implemented("terminals")
    command = [value for key, value in query if key == "command"]
    if not command:
        raise errors.bad_request("you must specify at least 1 command for the container")
    process = cluster.kubelet.runtime.execute(pod, container, command)
    return Upgrade(head, lambda sock: _serve(sock, process, protocol))


def running(pod: Object, container: str) -> None:
    if not pod["spec"].get("nodeName"):
        raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    if "running" not in _state(pod, container):
        raise errors.refusal(500, "InternalError", f'container not found ("{container}")')


def agreed(headers: Mapping[str, str], offered: tuple[str, ...]) -> tuple[str, bytes]:
    found = handshake(headers, offered)
    if found is None:  # also for a client that speaks SPDY outside a WebSocket, as those before 2024 do
        raise errors.bad_request(f"unable to upgrade: this server speaks WebSocket only, in {' or '.join(offered)}")
    return found


def _serve(sock: socket.socket, process: subprocess.Popen[bytes], protocol: str) -> None:
    channels = Channels(sock)
    assert process.stdin and process.stdout and process.stderr
    outputs = {process.stdout.fileno(): OUT, process.stderr.fileno(): ERROR}
    try:
        while outputs:
            ready, _, _ = select.select([sock.fileno(), *outputs], [], [])
            for one in ready:
                if one == sock.fileno():
                    for channel, data in channels.receive():
                        _take(process, channel, data, protocol)
                elif part := os.read(one, 32768):
                    channels.send(outputs[one], part)
                else:
                    del outputs[one]
        channels.send(STATUS, json.dumps(_ended(process.wait())).encode())
        channels.close()
    except Gone:
        process.kill()
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        process.wait()


def _take(process: subprocess.Popen[bytes], channel: int, data: bytes, protocol: str) -> None:
    assert process.stdin
    if channel == IN and not process.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(data)
            process.stdin.flush()
    elif (channel, data[:1]) == (CLOSING, bytes([IN])) and protocol.startswith("v5"):
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _ended(code: int) -> Any:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }

"""Connections to the ports of pods: two channels of a WebSocket for each, as the official client has them, or pairs of
SPDY's streams within a WebSocket, as kubectl."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.schema import Object
from tests.backends.kubernetes.fake.spdy import Data, Opened, Reset, Session, WrongFrame
from tests.backends.kubernetes.fake.streams import Query, Upgrade, agreed, running
from tests.backends.kubernetes.fake.websocket import Channels, Gone, Messages

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

CHANNELS, TUNNEL = "v4.channel.k8s.io", "SPDY/3.1+portforward.k8s.io"
PART = 32768
Dial = Callable[[int], socket.socket]


def forward(cluster: Cluster, pod: Object, query: Query, headers: Mapping[str, str]) -> Upgrade:
    protocol, head = agreed(headers, (TUNNEL, CHANNELS))
    running(pod, pod["spec"]["containers"][0]["name"])

    def dial(port: int) -> socket.socket:
        return cluster.kubelet.runtime.dial(pod, port)

    if protocol == TUNNEL:
        return Upgrade(head, lambda sock: _Tunnel(sock, dial).serve())
    ports = [int(port) for key, value in query if key == "ports" for port in value.split(",")]
    if not ports:
        raise errors.bad_request('query parameter "ports" is required')
    return Upgrade(head, lambda sock: _forward(sock, ports, dial))


def _forward(sock: socket.socket, ports: Sequence[int], dial: Dial) -> None:
    channels, ends = Channels(sock), dict[int, socket.socket]()
    try:
        for at, port in enumerate(ports):
            for channel in (2 * at, 2 * at + 1):
                channels.send(channel, struct.pack("<H", port))
        for at, port in enumerate(ports):
            try:
                ends[2 * at] = dial(port)
            except OSError as problem:
                channels.send(2 * at + 1, _failure(port, problem))
        while ends:
            ready, _, _ = select.select([sock, *ends.values()], [], [])
            for one in ready:
                if one is sock:
                    for channel, data in channels.receive():
                        if channel in ends:
                            ends[channel].sendall(data)
                    continue
                channel = next(each for each, end in ends.items() if end is one)
                if part := one.recv(PART):
                    channels.send(channel, part)
                else:
                    ends.pop(channel).close()
        channels.close()
    except (Gone, OSError):
        return
    finally:
        for end in ends.values():
            end.close()


def _failure(port: int, problem: OSError) -> bytes:
    return f"error forwarding port {port} to pod: {problem}".encode()


class _Tunnel:
    """Any number of connections: each has a stream for its data, and one before it for what goes wrong."""

    def __init__(self, sock: socket.socket, dial: Dial) -> None:
        self._sock, self._dial, self._messages = sock, dial, Messages(sock)
        self._session = Session(self._messages.write)
        self._errors: dict[str, int] = {}  # the streams for errors that wait for their data's, by request
        self._ends: dict[int, socket.socket] = {}  # by the stream of the data
        self._error_of: dict[int, int] = {}

    def serve(self) -> None:
        """Until the client leaves."""
        try:
            while True:
                ready, _, _ = select.select([self._sock, *self._ends.values()], [], [])
                for one in ready:
                    if one is self._sock:
                        for event in self._session.take(b"".join(self._messages.read())):
                            self._take(event)
                        break  # it may have closed others
                    self._pass_back(next(each for each, end in self._ends.items() if end is one))
        except (Gone, WrongFrame):
            return
        finally:
            for end in self._ends.values():
                end.close()

    def _take(self, event: Opened | Data | Reset) -> None:
        if isinstance(event, Opened):
            self._open(event)
        elif isinstance(event, Reset):
            self._end(event.stream)
        elif (end := self._ends.get(event.stream)) is not None:
            try:
                end.sendall(event.content)
                if event.last:
                    end.shutdown(socket.SHUT_WR)
            except OSError:
                self._end(event.stream)

    def _open(self, event: Opened) -> None:
        headers, request = event.headers, event.headers["requestid"]
        if headers["streamtype"] == "error":
            self._errors[request] = event.stream
            return
        error, port = self._errors.pop(request), int(headers["port"])
        try:
            self._ends[event.stream], self._error_of[event.stream] = self._dial(port), error
        except OSError as problem:
            self._session.write(error, _failure(port, problem), last=True)
            self._session.write(event.stream, b"", last=True)

    def _pass_back(self, stream: int) -> None:
        try:
            part = self._ends[stream].recv(PART)
        except OSError:
            part = b""
        if part:
            self._session.write(stream, part)
        else:
            self._end(stream)

    def _end(self, stream: int) -> None:
        if (end := self._ends.pop(stream, None)) is not None:
            end.close()
            for each in (stream, self._error_of.pop(stream)):
                self._session.write(each, b"", last=True)

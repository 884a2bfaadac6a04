"""Hosts that are reached only through a head node, all with SSH servers of paramiko's: those of the hosts speak over
the channels of the head's."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import paramiko

from chalicelib.hosts.connection import HostLogin
from tests.hosts.bad_host import KEY
from tests.hosts.fake_host import FakeConnection, FakeHost

_HOST_KEY = paramiko.ECDSAKey.generate()


class _Open(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


class _Host(_Open):
    def __init__(self, commands: FakeConnection) -> None:
        self._commands = commands

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        """Once all input is here, so its request has been answered."""
        ran = self._commands.run(command, stdin=b"".join(iter(lambda: channel.recv(65536), b"")))
        channel.sendall(ran.out.encode())
        channel.sendall_stderr(ran.err.encode())
        channel.send_exit_status(ran.status)
        channel.close()


class _Head(_Open):
    def __init__(self, behind: Mapping[str, FakeHost]) -> None:
        self._behind, self.destinations = behind, dict[int, str]()

    def check_channel_direct_tcpip_request(
        self, chanid: int, origin: tuple[str, int], destination: tuple[str, int]
    ) -> int:
        if destination[0] not in self._behind:
            return paramiko.OPEN_FAILED_CONNECT_FAILED
        self.destinations[chanid] = destination[0]
        return paramiko.OPEN_SUCCEEDED


@dataclass
class Site:
    hosts: Mapping[str, FakeHost]
    port: int
    head: list[paramiko.Transport] = field(default_factory=list)  # one for each login there
    behind: list[paramiko.Transport] = field(default_factory=list)

    def login(self, name: str) -> HostLogin:
        return HostLogin(name, 22, "me", KEY, jump=HostLogin("127.0.0.1", self.port, "me", KEY))

    def serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                threading.Thread(target=self._welcome, args=(accepted,), daemon=True).start()

    def _welcome(self, accepted: socket.socket) -> None:
        head, door = paramiko.Transport(accepted), _Head(self.hosts)
        self.head.append(head)
        head.add_server_key(_HOST_KEY)
        with contextlib.suppress(paramiko.SSHException, EOFError):
            head.start_server(server=door)
        while head.is_active():
            if channel := head.accept(0.5):
                name = door.destinations[channel.chanid]
                host = paramiko.Transport(channel)
                self.behind.append(host)
                host.add_server_key(_HOST_KEY)
                host.start_server(
                    event=threading.Event(), server=_Host(FakeConnection(self.hosts[name], self.login(name)))
                )


@contextlib.contextmanager
def hosts_behind(*names: str) -> Iterator[Site]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        site = Site({name: FakeHost() for name in names}, listener.getsockname()[1])
        threading.Thread(target=site.serve, args=(listener,), daemon=True).start()
        try:
            yield site
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for transport in (*site.behind, *site.head):
                with contextlib.suppress(EOFError):  # its head is gone
                    transport.close()

"""A host that speaks SSH as it likes: paramiko's own server, on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from chalicelib.hosts.connection import HostLogin

_HOST_KEY = paramiko.ECDSAKey.generate()
KEY = (
    ed25519.Ed25519PrivateKey.generate()
    .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    .decode()
)


class _Doors(paramiko.ServerInterface):
    def __init__(self, answer: Callable[[paramiko.Channel], object] | None, made: Callable[[int], int]) -> None:
        self._answer, self._made = answer, made

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self._answer is None:
            threading.Event().wait(60)  # the request is never answered
            return False
        threading.Thread(target=self._answer, args=(channel,), daemon=True).start()
        return True

    def check_port_forward_request(self, address: str, port: int) -> int:
        return self._made(port)


@contextlib.contextmanager
def bad_host(
    answer: Callable[[paramiko.Channel], object] | None = None, forwards: Callable[[int], int] = lambda port: 4321
) -> Iterator[tuple[HostLogin, list[Any]]]:
    """A login to a host that answers commands with `answer`, or never. And its transports, one for each connection."""
    transports: list[paramiko.Transport] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                transport = paramiko.Transport(accepted)
                transport.add_server_key(_HOST_KEY)
                transports.append(transport)
                with contextlib.suppress(paramiko.SSHException, OSError, EOFError):  # whoever called has gone already
                    transport.start_server(server=_Doors(answer, forwards))

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield HostLogin("127.0.0.1", listener.getsockname()[1], "me", KEY), transports
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for transport in transports:
                transport.close()

"""The ports of a job's SSH server, and its connections."""

from __future__ import annotations

import os
import re
import socket

ACCEPTED = b"Accepted publickey"
FINGERPRINT = re.compile(rb"Accepted publickey for .* (SHA256:[A-Za-z0-9+/]{43})")


class LoginPort:
    """A port with its sshd configuration. An sshd is started for each connection."""

    def __init__(self, listener: socket.socket, config: str, most: int) -> None:
        self.listener, self.config, self.most = listener, config, most
        listener.setblocking(False)


class LoginConnection:
    """A connection, which one sshd serves. Its standard error shows when the login succeeded and when it has ended."""

    def __init__(self, pid: int, stderr: int, port: LoginPort, peer: str) -> None:
        """`stderr`: a descriptor of the sshd's standard error. `peer`: the caller's address."""
        self.pid, self.stderr, self.port, self.peer, self.accepted = pid, stderr, port, peer, False
        self.fingerprint = ""  # of the key of the login
        self._tail = b""

    def read(self) -> bool:
        """Read the sshd's messages; False if it has ended."""
        try:
            part = os.read(self.stderr, 65536)
        except BlockingIOError:
            return True
        self._tail = (self._tail + part)[-8192:]
        self.accepted = self.accepted or ACCEPTED in self._tail
        if self.accepted and not self.fingerprint:  # the line may be completed by the next part
            found = FINGERPRINT.search(self._tail)
            self.fingerprint = found.group(1).decode() if found else ""
        return bool(part)

    def last_output(self) -> str:
        return " / ".join(self._tail.decode("utf-8", "replace").split("\r\n"))[-400:].strip(" /")

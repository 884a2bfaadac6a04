"""Who comes to a job's SSH server: the ports where they come in, and the connections that they have."""

from __future__ import annotations

import os
import re
import socket

ACCEPTED = b"Accepted publickey"
FINGERPRINT = re.compile(rb"Accepted publickey for .* (SHA256:[A-Za-z0-9+/]{43})")


class LoginPort:
    """A port where sshd is started for whoever comes, with one configuration."""

    def __init__(self, listener: socket.socket, config: str, most: int) -> None:
        self.listener, self.config, self.most = listener, config, most
        listener.setblocking(False)


class LoginConnection:
    """One sshd. What it says on its standard error tells when the login succeeded, and when all of it has ended."""

    def __init__(self, pid: int, said: int, door: LoginPort, peer: str) -> None:
        """`peer`: the address that it comes from."""
        self.pid, self.said, self.door, self.peer, self.accepted = pid, said, door, peer, False
        self.fingerprint = ""  # of the key that it logged in with
        self._last = b""

    def listen(self) -> bool:
        """Takes in what it said; False once it has ended."""
        try:
            part = os.read(self.said, 65536)
        except BlockingIOError:
            return True
        self._last = (self._last + part)[-8192:]
        self.accepted = self.accepted or ACCEPTED in self._last
        if self.accepted and not self.fingerprint:  # the rest of the line may come with the next part
            found = FINGERPRINT.search(self._last)
            self.fingerprint = found.group(1).decode() if found else ""
        return bool(part)

    def last_words(self) -> str:
        return " / ".join(self._last.decode("utf-8", "replace").split("\r\n"))[-400:].strip(" /")

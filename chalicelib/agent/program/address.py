"""The server's address, the head node on the route there, and the agent's token. They are in files, so that a running
agent can follow a server that moves.

A server that has moved redirects its agents. An agent that was started with the old address, as a unit of systemd is
each time, goes on to the new one: `moved` contains both. Only the server itself can redirect an agent, as only it can
give it tasks: what answers at the server's address, with a certificate of its name if the address is one of https, from
which no redirection leads to plain http.
"""

from __future__ import annotations

import os
from typing import Tuple
from urllib.parse import urlsplit

from ..kernel.log import log
from ..kernel.tasks import read_text, write_atomic


class Address:
    def __init__(self, data: str) -> None:
        self._data = data
        self.current: Tuple[str, str] = ("", "")  # the server's URL and the token

    def read(self) -> Tuple[str, str]:
        return (_line(self._data, "server"), _line(self._data, "token"))

    def via(self) -> str:
        return _line(self._data, "via")

    def refresh(self) -> bool:
        """Reread `current`; returns whether it has changed."""
        before, self.current = self.current, self.read()
        return before != self.current

    def follow(self, url: str) -> None:
        """Call the server there from now on, unless the redirection is one that no server of ours makes."""
        old = _line(self._data, "server")
        problem = _problem(old, url)
        if problem:
            log("the server's redirection to %.200r isn't followed: %s" % (url, problem))
            return
        first = _first(self._data, old)
        write_atomic(os.path.join(self._data, "moved"), "%s\n%s\n" % (first, url), durable=True)
        write_atomic(os.path.join(self._data, "server"), url + "\n", durable=True)


def followed(data: str, started_with: str) -> str:
    """The address to call, for an agent that is started with this one: where the server there has moved to, if it
    has."""
    first, _, last = (read_text(os.path.join(data, "moved")) or "").strip().partition("\n")
    return last if last and first == started_with else started_with


def _first(data: str, old: str) -> str:
    """The address that the agent was started with, however often the server has moved since."""
    first, _, last = (read_text(os.path.join(data, "moved")) or "").strip().partition("\n")
    return first if last == old else old


def _problem(old: str, new: str) -> str:
    try:
        before, after = urlsplit(old), urlsplit(new)
        after.port  # noqa: B018 - raises ValueError if it isn't one
    except ValueError as wrong:
        return str(wrong)
    if new == old:
        return "it is where the server was"
    if after.scheme not in ("http", "https") or not after.hostname or "@" in after.netloc or len(new.split()) != 1:
        return "it isn't the address of a server"
    if before.scheme == "https" and after.scheme != "https":
        return "it leads from https to plain http"
    return ""


def _line(data: str, name: str) -> str:
    return (read_text(os.path.join(data, name)) or "").strip()

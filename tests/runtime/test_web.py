"""The embedded server's loop: a signal ends it whenever that comes."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Sequence

from chalicelib.runtime.web import WebServer


class Signalled(WebServer):
    """Gets its signal while it starts, and handles it just before it waits for one."""

    def __init__(self) -> None:
        self.drained, self.started = threading.Event(), False
        self._drain = self.drained.set
        self.should_exit = self.force_exit = False
        self._captured_signals: list[int] = []

    async def _serve(self, sockets: Sequence[socket.socket] | None = None) -> None:
        await self.startup(sockets)
        await self.main_loop()

    async def startup(self, sockets: Sequence[socket.socket] | None = None) -> None:
        before = set(threading.enumerate())
        self.handle_exit(signal.SIGTERM, None)
        for thread in set(threading.enumerate()) - before:
            thread.join()


def test_a_signal_during_the_start_ends_the_server() -> None:
    server = Signalled()

    async def served() -> None:
        with server.capture_signals():
            await asyncio.wait_for(server.serve(), 120)

    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        asyncio.run(served())
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert server.drained.is_set() and server.should_exit

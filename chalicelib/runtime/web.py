"""The embedded server's HTTP: uvicorn around the same app that API Gateway calls in AWS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import uvicorn

from chalicelib.runtime.asgi import AsgiBridge
from chalicelib.runtime.connection import Connection
from chalicelib.runtime.control_plane import ControlPlane
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.usecases.agent import has_news

API_THREADS = 4


class WebServer(uvicorn.Server):  # type: ignore[misc]  # the type checker skips uvicorn
    """Uvicorn, but it drains before it stops listening, and sleeps while nothing happens: uvicorn's own loop wakes ten
    times a second to check a flag and the date."""

    def __init__(self, root: EmbeddedRoot, *, ready: Callable[[], None], drain: Callable[[], None]) -> None:
        threads = ThreadPoolExecutor(API_THREADS, thread_name_prefix="api")
        app, limit = ControlPlane(lambda: root.plane), root.plane.limits.body
        bridge = AsgiBridge(app, threads, root.polls, body_limit=limit, has_news=has_news, on_ready=ready)
        super().__init__(
            uvicorn.Config(
                bridge,
                log_level="warning",
                access_log=False,
                lifespan="on",
                http=Connection,
                ws="none",
                server_header=False,
                date_header=False,
                timeout_keep_alive=90,
                timeout_graceful_shutdown=5,
            )
        )
        self._drain = drain

    async def main_loop(self) -> None:
        self._loop, self._leaving = asyncio.get_running_loop(), asyncio.Event()
        await self._leaving.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        threading.Thread(target=self._leave, args=(sig, frame), daemon=True).start()

    def _leave(self, sig: int, frame: FrameType | None) -> None:
        self._drain()
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._leaving.set)

"""`dstack server` on a data folder whose control plane has moved: it decides nothing, and tells agents and people where
the control plane is now. It ends when the folder decides again, because the control plane has come back.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.api.dispatch import Reply, Request
from chalicelib.api.signpost import answer
from chalicelib.domain.fences import Fence
from chalicelib.errors import Bug
from chalicelib.runtime.asgi import DRAIN_SECONDS, AsgiExchange, LeftEarly, TooLarge, size_of
from chalicelib.runtime.data_folder import secret_file
from chalicelib.runtime.ticker import Ticker
from chalicelib.runtime.web import EntranceServer
from chalicelib.serving.ports import Receive, Scope, Send
from chalicelib.store.fences import decides, fence_of

if TYPE_CHECKING:
    from chalicelib.runtime.entrances import Entrances
    from chalicelib.runtime.trusted_proxies import TrustedProxies
    from chalicelib.store.port import Store
    from chalicelib.usecases.ports import CredentialPorts

DATABASE = "plane.db"
CHECK_EVERY = 1.0  # seconds between two checks whether the folder decides again
MOST_BODY = 256 * 1024  # bytes: of an agent's message, only the instance is read
JSON = {"Content-Type": "application/json"}


def fenced(folder: Path) -> Fence | None:
    """Why this folder's control plane doesn't decide; None if it does."""
    from chalicelib.store.sqlite import SqliteStore

    if not (folder / DATABASE).exists():
        return None
    store = SqliteStore(folder / DATABASE)
    try:
        found = fence_of(store)
        return None if found is None or found.decides else found
    finally:
        store.close()


@dataclass(frozen=True)
class SignpostPorts:
    """What recognising an agent takes."""

    store: Store
    install_key: bytes

    @property
    def random_token(self) -> Callable[[], str]:
        raise Bug("a control plane that has moved makes no tokens")


def show_the_way(folder: Path, entrances: Entrances, proxies: TrustedProxies) -> bool:
    """Serve until a signal comes, or until the folder decides again: then it returns True."""
    from chalicelib.store.sqlite import SqliteStore

    store = SqliteStore(folder / DATABASE)
    ports: CredentialPorts = SignpostPorts(store, secret_file(folder / "install.key"))  # type: ignore[assignment]
    server = EntranceServer(Answers(Signpost(ports).reply), entrances.all, proxies=proxies)
    back = False

    def check() -> None:
        nonlocal back
        if decides(store):
            back = True
            server.leave()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again once it has drained
    checking = Ticker(CHECK_EVERY, check)
    try:
        if (found := fence_of(store)) is not None:
            print(f"{found.problem} This server only says so, and sends agents there.", flush=True)
        checking.start()
        if entrances.certificate is not None:
            entrances.certificate.start()
        server.run(sockets=[each.listener for each in entrances.all])
    finally:
        checking.stop()
        if entrances.certificate is not None:
            entrances.certificate.stop()
        store.close()
    return back


class Signpost:
    def __init__(self, ports: CredentialPorts) -> None:
        self._ports = ports

    def reply(self, request: Request) -> Reply:
        fence = fence_of(self._ports.store)
        if fence is None or fence.decides:  # the server comes up in a moment
            return Reply(503, JSON, b"{}")
        if request.path == "/healthz":
            return Reply(200, JSON, b'{"alive":true}')
        if request.path == "/readyz":
            return Reply(503, JSON, b'{"ready":false}')
        return answer(self._ports, fence, request)


class Answers:
    """The ASGI application of a server that decides nothing: each request gets a short answer, on a thread."""

    def __init__(self, reply: Callable[[Request], Reply]) -> None:
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            exchange = AsgiExchange(scope, receive, size_of(headers), DRAIN_SECONDS)
            try:
                body = await exchange.body(MOST_BODY)
            except TooLarge:
                body = b""  # it isn't needed to say who decides
            except LeftEarly:
                return
            request = Request(method=scope["method"], path=scope["path"], headers=headers, body=body)
            await exchange.answer(await asyncio.to_thread(self._reply, request))


async def _live(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    if message["type"] == "lifespan.shutdown":
        await send({"type": "lifespan.shutdown.complete"})

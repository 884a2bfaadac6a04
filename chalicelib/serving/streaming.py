"""Requests whose body is still on its way when they go on: a library sends and receives at the same time.

Whatever it would do for a program that is the client itself is switched off: it keeps no cookies, follows no redirects,
unpacks nothing, and never repeats a request by itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from chalicelib.serving import problems
from chalicelib.serving.exchange import CONNECT_SECONDS, IDLE, Body
from chalicelib.serving.headers import MOST as MOST_HEADERS
from chalicelib.serving.problems import Unanswered
from chalicelib.serving.upstream import BUFFER, KEPT_SECONDS, AnswerCutShort, Place

MOST_WAYS = 1000  # replicas reached over sockets of their own
_NEVER = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # headers of the library's own


class Streamed:
    """A response of the library."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response, self._content = response, response.content
        self.status = response.status
        self.raw_headers: Sequence[tuple[bytes, bytes]] = response.raw_headers
        self.release = response.release

    @property
    def follows(self) -> bool:
        return self._content.total_bytes > 0 or self._content.at_eof()

    @property
    def ended(self) -> bool:
        return self._content.at_eof() and self._content.exception() is None

    async def part(self) -> bytes:
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise AnswerCutShort from error


class Streaming:
    """The library's connections to all replicas. Used on the event loop."""

    def __init__(self) -> None:
        self._network: aiohttp.ClientSession | None = None
        self._sockets: OrderedDict[str, aiohttp.ClientSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def request(
        self, place: Place, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: Body
    ) -> Streamed:
        """The response, of which only the head has been read. Raises Unanswered, or what stopped the body."""
        host = "replica" if isinstance(place, str) else f"{place[0]}:{place[1]}"
        given: CIMultiDict[str] = CIMultiDict([(name.decode(), value.decode()) for name, value in headers])
        try:
            return Streamed(
                await self._session(place).request(
                    method,
                    URL(f"http://{host}{target.decode('ascii')}", encoded=True),
                    headers=given,
                    data=body.pieces(),
                    allow_redirects=False,
                )
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unanswered(problems.unreachable()) from error
        except aiohttp.ClientResponseError as error:
            raise problems.no_answer() from error
        except (aiohttp.ClientError, TimeoutError) as error:
            if body.problem is not None:  # the client's fault, not the replica's
                raise body.problem from error
            if isinstance(error, TimeoutError):
                raise problems.too_slow(IDLE) from error
            raise Unanswered(problems.unanswered()) from error

    def _session(self, place: Place) -> aiohttp.ClientSession:
        if not isinstance(place, str):
            if self._network is None:
                self._network = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS))
            return self._network
        session = self._sockets.get(place)
        if session is None:
            session = _session(aiohttp.UnixConnector(place, limit=0, keepalive_timeout=KEPT_SECONDS))
            self._sockets[place] = session
            if len(self._sockets) > MOST_WAYS:
                _, oldest = self._sockets.popitem(last=False)
                closing = asyncio.ensure_future(oldest.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        self._sockets.move_to_end(place)
        return session

    async def close(self) -> None:
        for session in (self._network, *self._sockets.values()):
            if session is not None:
                await session.close()


def _session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_NEVER,
        auto_decompress=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=IDLE),
        read_bufsize=BUFFER,
        max_line_size=MOST_HEADERS,
        max_field_size=MOST_HEADERS,
    )
    session._retry_connection = False  # it would repeat a request whose body it can't
    return session

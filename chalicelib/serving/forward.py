"""A request goes to a replica and its response comes back: as they come, and never more of them than a buffer holds.

Whatever the library would do for a program that is the client itself is switched off: it keeps no cookies, follows no
redirects, unpacks nothing, and never repeats a request by itself.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from chalicelib.domain.serving import ServedReplica
from chalicelib.serving import problems
from chalicelib.serving.exchange import CONNECT_SECONDS, IDLE, Body, Exchange
from chalicelib.serving.headers import MOST as MOST_HEADERS
from chalicelib.serving.headers import back
from chalicelib.serving.problems import Unanswered

KEPT_SECONDS = 30.0  # that a connection to a replica is kept for the next request
BUFFER = 64 * 1024  # bytes of a response that wait for the client, times two
MOST_WAYS = 1000  # replicas reached over sockets of their own
_UNFIT = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # what no header's value may have; the library lets it through
_NEVER = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")  # headers of the library's own


class Replicas:
    """The connections to all replicas. Used on the event loop."""

    def __init__(self, way: Callable[[ServedReplica], str]) -> None:
        self._way = way
        self._network: aiohttp.ClientSession | None = None
        self._sockets: OrderedDict[str, aiohttp.ClientSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def request(
        self, replica: ServedReplica, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: Body
    ) -> aiohttp.ClientResponse:
        """The response, of which only the head has been read. Raises Unanswered, or what stopped the body."""
        try:
            given: CIMultiDict[str] = CIMultiDict([(name.decode(), value.decode()) for name, value in headers])
        except UnicodeDecodeError as wrong:
            raise problems.not_utf8() from wrong
        session = self._session(replica)
        host = f"{replica.address}:{replica.port}" if replica.address else "replica"
        start = await body.start()
        try:
            return await session.request(
                method,
                URL(f"http://{host}{target.decode('ascii')}", encoded=True),
                headers=given,
                data=body.pieces() if start is None else start or None,
                allow_redirects=False,
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

    def _session(self, replica: ServedReplica) -> aiohttp.ClientSession:
        if replica.address:
            if self._network is None:
                self._network = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS))
            return self._network
        path = self._way(replica)
        if not path:
            raise Unanswered(problems.unreachable())
        session = self._sockets.get(path)
        if session is None:
            session = _session(aiohttp.UnixConnector(path, limit=0, keepalive_timeout=KEPT_SECONDS))
            self._sockets[path] = session
            if len(self._sockets) > MOST_WAYS:
                _, oldest = self._sockets.popitem(last=False)
                closing = asyncio.ensure_future(oldest.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        self._sockets.move_to_end(path)
        return session

    async def give_back(
        self, response: aiohttp.ClientResponse, exchange: Exchange, request_id: str, replica: str
    ) -> None:
        """The response to the client, each part as soon as it is here."""
        if not _is_answer(response):
            raise problems.no_answer()
        headers = back(response.raw_headers, request_id, replica)
        without = exchange.method == "HEAD" or response.status in (204, 304)
        if without and exchange.method != "HEAD":
            headers = [each for each in headers if each[0] != b"content-length"]
        content = response.content
        await exchange.begin(response.status, headers, goes_on=without or content.total_bytes > 0 or content.at_eof())
        try:
            while not without and (part := await content.readany()):
                await exchange.write(part, last=content.at_eof() and content.exception() is None)
        except (aiohttp.ClientError, TimeoutError):  # half of it is with the client already
            await exchange.break_off()
            return
        if not exchange.ended:
            await exchange.write(b"", last=True)

    async def close(self) -> None:
        for session in (self._network, *self._sockets.values()):
            if session is not None:
                await session.close()


def _is_answer(response: aiohttp.ClientResponse) -> bool:
    """Can it be passed on as HTTP? A switch to another protocol, for which nobody has asked, can't."""
    if not 200 <= response.status < 600:
        return False
    return _UNFIT.search(b"".join([value for _, value in response.raw_headers])) is None


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

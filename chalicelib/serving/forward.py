"""A request goes to a replica and its response comes back: as they come, and never more of them than a buffer holds.

Most requests are here as a whole when they go on, and take the short way (`upstream.py`). One whose body is still on
its way takes the other (`streaming.py`), which is loaded when it is first needed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from chalicelib.domain.serving import ServedReplica
from chalicelib.serving import problems
from chalicelib.serving.exchange import Body, Exchange
from chalicelib.serving.headers import Raw, back
from chalicelib.serving.problems import Unanswered
from chalicelib.serving.upstream import AnswerCutShort, Place, Upstreams, written

if TYPE_CHECKING:
    from chalicelib.serving.streaming import Streaming

_UNFIT = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # what no header's value may have; the parsers let it through


class Response(Protocol):
    """What a replica answers, of which the head is here."""

    status: int

    @property
    def raw_headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    @property
    def follows(self) -> bool:
        """Is some of the body, or its end, here already?"""

    @property
    def ended(self) -> bool:
        """Has all of the body been handed out?"""

    async def part(self) -> bytes:
        """The next bytes of the body; none at its end. Raises Broken."""

    def release(self) -> None:
        """It isn't needed any more."""


class ReplicaConnections:
    """The ways to all replicas. Used on the event loop."""

    def __init__(
        self,
        way: Callable[[ServedReplica], str],
        aside: Callable[[Callable[[], type[Streaming]]], Awaitable[type[Streaming]]],
    ) -> None:
        self._way, self._aside = way, aside
        self._upstreams = Upstreams()
        self._streaming: Streaming | None = None

    async def request(
        self, replica: ServedReplica, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: Body
    ) -> Response:
        """The response, of which only the head is sure to be here. Raises Unanswered, or what stopped the body."""
        _check(headers)
        place: Place = (replica.address, replica.port) if replica.address else self._way(replica)
        if not place:
            raise Unanswered(problems.unreachable())
        whole = await body.start()
        if whole is not None:
            return await self._upstreams.ask(place, method, written(method, target, headers, whole))
        streaming = self._streaming or await self._loaded()
        return await streaming.request(place, method, target, headers, body)

    async def _loaded(self) -> Streaming:
        """The library for it takes nine megabytes, and most servers never stream a body."""

        def load() -> type[Streaming]:
            from chalicelib.serving.streaming import Streaming

            return Streaming

        kind = await self._aside(load)
        if self._streaming is None:
            self._streaming = kind()
        return self._streaming

    async def give_back(self, response: Response, exchange: Exchange, request_id: str, replica: str) -> None:
        """The response to the client, each part as soon as it is here."""
        if not _is_answer(response):
            raise problems.no_answer()
        headers = back(response.raw_headers, request_id, replica)
        without = exchange.method == "HEAD" or response.status in (204, 304)
        if without and exchange.method != "HEAD":
            headers = [each for each in headers if each[0] != b"content-length"]
        exchange.begin(response.status, headers, goes_on=without or response.follows)
        try:
            while not without and (part := await response.part()):
                await exchange.write(part, last=response.ended)
        except AnswerCutShort:  # half of it is with the client already
            await exchange.break_off()
            return
        if not exchange.ended:
            await exchange.write(b"", last=True)

    async def close(self) -> None:
        self._upstreams.close()
        if self._streaming is not None:
            await self._streaming.close()


def _check(headers: Raw) -> None:
    text = b"".join([name + value for name, value in headers])
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            raise problems.not_utf8() from wrong


def _is_answer(response: Response) -> bool:
    """Can it be passed on as HTTP? A switch to another protocol, for which nobody has asked, can't."""
    if not 200 <= response.status < 600:
        return False
    return _UNFIT.search(b"".join([value for _, value in response.raw_headers])) is None

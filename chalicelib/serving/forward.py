"""A request goes to a replica and its response comes back: as they come, and never more of them than a buffer holds.

Most requests are here as a whole when they go on; the body of any other follows as it comes (`upstream.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from chalicelib.domain.serving import ServedReplica
from chalicelib.serving import problems
from chalicelib.serving.choosing import REPEATABLE
from chalicelib.serving.exchange import Body, Exchange
from chalicelib.serving.headers import Raw, back
from chalicelib.serving.problems import Unanswered
from chalicelib.serving.upstream import AnswerCutShort, Place, Upstream, Upstreams, begun, framed, written

_UNFIT = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # what no header's value may have; the parsers let it through


class ReplicaConnections:
    """The ways to all replicas. Used on the event loop."""

    def __init__(self, way: Callable[[ServedReplica], str]) -> None:
        self._way = way
        self._upstreams = Upstreams()

    async def request(
        self,
        replica: ServedReplica,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        body: Body,
        patience: float,
    ) -> Upstream:
        """The response, of which only the head is sure to be here. Raises Unanswered, or what stopped the body."""
        _check(headers)
        place: Place = (replica.address, replica.port) if replica.address else self._way(replica)
        if not place:
            raise Unanswered(problems.unreachable())
        whole = await body.start()
        if whole is not None:
            return await self._upstreams.ask(place, method, written(method, target, headers, whole), patience=patience)
        announced = body.announced
        head, rest = begun(method, target, headers, announced), framed(body.pieces(), announced)
        afresh = announced is None or announced > REPEATABLE
        return await self._upstreams.ask(place, method, head, rest, afresh=afresh, patience=patience)

    async def give_back(
        self, response: Upstream, exchange: Exchange, request_id: str, replica: str, prefix: str
    ) -> None:
        """The response to the client, each part as soon as it is here. `prefix`: of the service's paths."""
        if not _is_answer(response):
            raise problems.no_answer()
        headers = back(response.raw_headers, request_id, replica, prefix)
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

    def close(self) -> None:
        self._upstreams.close()


def _check(headers: Raw) -> None:
    text = b"".join([name + value for name, value in headers])
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            raise problems.not_utf8() from wrong


def _is_answer(response: Upstream) -> bool:
    """Can it be passed on as HTTP? A switch to another protocol, for which nobody has asked, can't."""
    if not 200 <= response.status < 600:
        return False
    return _UNFIT.search(b"".join([value for _, value in response.raw_headers])) is None

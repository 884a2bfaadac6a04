"""Passing requests to replicas and responses back, as a stream that never takes more memory than a buffer.

Most requests have arrived completely when they are passed on; other bodies are streamed (`upstream.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from chalicelib.domain.serving import ServedReplica
from chalicelib.serving import problems
from chalicelib.serving.balancer import REPEATABLE
from chalicelib.serving.exchange import Body, Exchange
from chalicelib.serving.headers import Raw, back
from chalicelib.serving.problems import Unanswered
from chalicelib.serving.upstream import AnswerCutShort, Place, Upstream, Upstreams, begun, framed, written

_UNFIT = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # invalid in header values, though the parsers accept them


class ReplicaConnections:
    """The connections to all replicas. Used on the event loop."""

    def __init__(self, socket_path: Callable[[ServedReplica], str]) -> None:
        self._socket_path = socket_path
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
        """The response, of which at least the head has arrived. Raises Unanswered, or the error that stopped the
        body."""
        _check(headers)
        place: Place = (replica.address, replica.port) if replica.address else self._socket_path(replica)
        if not place:
            raise Unanswered(problems.unreachable())
        content = await body.start()
        if content is not None:
            return await self._upstreams.send_request(
                place, method, written(method, target, headers, content), patience=patience
            )
        announced = body.announced
        head, rest = begun(method, target, headers, announced), framed(body.pieces(), announced)
        afresh = announced is None or announced > REPEATABLE
        return await self._upstreams.send_request(place, method, head, rest, afresh=afresh, patience=patience)

    async def give_back(
        self, response: Upstream, exchange: Exchange, request_id: str, replica: str, prefix: str
    ) -> None:
        """Pass the response to the client, each part as soon as it arrives. `prefix`: of the service's paths."""
        if not _is_answer(response):
            raise problems.no_answer()
        headers = back(response.raw_headers, request_id, replica, prefix)
        without = exchange.method == "HEAD" or response.status in (204, 304)
        if without and exchange.method != "HEAD":
            headers = [each for each in headers if each[0] != b"content-length"]
        exchange.begin(response.status, headers, goes_on=without or response.has_body)
        try:
            while not without and (part := await response.part()):
                await exchange.write(part, last=response.ended)
        except AnswerCutShort:  # the client has part of it already
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
    """Whether it can be passed on as HTTP. A switch to another protocol that wasn't requested can't."""
    if not 200 <= response.status < 600:
        return False
    return _UNFIT.search(b"".join([value for _, value in response.raw_headers])) is None

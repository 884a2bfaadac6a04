"""A connection to a replica: what it makes of bytes that come in any pieces, and when it is used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.serving.exchange import IDLE
from chalicelib.serving.problems import ClientGone, HttpProblem, Unanswered, too_large
from chalicelib.serving.upstream import (
    BUFFER,
    IDLE_SECONDS,
    MOST_HEAD,
    AnswerCutShort,
    Upstream,
    begun,
    framed,
    written,
)

HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nx-sum: 5\r\n\r\n"
TO_ITS_END = b"HTTP/1.1 200 OK\r\n\r\nhello"


class Loop(asyncio.SelectorEventLoop):
    """Its time is the test's own."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Wire:
    """The transport below it."""

    def __init__(self) -> None:
        self.sent, self.aborted, self.reading = b"", False, True

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Replica:
    """The other end of one connection."""

    def __init__(self) -> None:
        self.loop = cast(Loop, asyncio.get_running_loop())
        self.idle: list[Upstream] = []
        self.wire, self.upstream = Wire(), Upstream(self.loop, self.idle)
        self.upstream.connection_made(cast(asyncio.Transport, self.wire))

    async def begin_request(self, method: str = "GET") -> asyncio.Task[None]:
        sending = asyncio.create_task(self.upstream.send_request(method, b"request"))
        await asyncio.sleep(0)
        return sending

    async def body(self) -> bytes:
        found = b""
        while part := await self.upstream.part():
            found += part
        return found

    async def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)


def play(story: Callable[[Replica], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await story(Replica())

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(run())


@given(st.sampled_from([SIZED, CHUNKED, HINTS + SIZED, HINTS + HINTS + CHUNKED]), st.lists(st.integers(1, 90)))
def test_an_answer_is_the_same_in_any_pieces(answer: bytes, cuts: list[int]) -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        places = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
        for start, end in pairwise(places):
            replica.upstream.data_received(answer[start:end])
        await sending
        assert replica.upstream.status == 200
        assert not any(name.lower() in (b"link", b"x-sum") for name, _ in replica.upstream.raw_headers)
        assert await replica.body() == b"hello" and replica.upstream.ended
        replica.upstream.release()
        assert replica.idle == [replica.upstream] and not replica.wire.aborted

    play(story)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        replica.upstream.data_received(TO_ITS_END)
        await sending
        assert await replica.upstream.part() == b"hello" and not replica.upstream.ended
        replica.upstream.connection_lost(None)
        assert await replica.upstream.part() == b"" and replica.upstream.ended
        replica.upstream.release()
        assert replica.idle == []

    play(story)


@pytest.mark.parametrize("answer", [SIZED[:-1], CHUNKED[:-20], CHUNKED[:-1]])
def test_an_answer_that_ends_too_soon_is_broken(answer: bytes) -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        replica.upstream.data_received(answer)
        replica.upstream.connection_lost(None)
        await sending
        with pytest.raises(AnswerCutShort):
            await replica.body()
        replica.upstream.release()
        assert replica.idle == []

    play(story)


@pytest.mark.parametrize("answer", [b"", SIZED[:20], HINTS])
def test_without_a_head_another_replica_may_be_asked(answer: bytes) -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        if answer:
            replica.upstream.data_received(answer)
        replica.upstream.connection_lost(ConnectionResetError())
        with pytest.raises(Unanswered):
            await sending

    play(story)


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * MOST_HEAD,
        HINTS * (MOST_HEAD // len(HINTS) + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_isnt_an_answer_is_none_and_isnt_asked_for_again(answer: bytes) -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        replica.upstream.data_received(answer)
        while not sending.done():  # what takes long is read in turns
            await replica.pass_time(0.1)
        with pytest.raises(HttpProblem) as found:
            await sending
        assert found.value.status == 502
        replica.upstream.release()
        assert replica.wire.aborted

    play(story)


@pytest.mark.parametrize("remainder", [b"0\r\nX: ", b"0\r\n" + b"X: a\r\n" * 300, b"5;x="])
def test_nothing_without_end_is_collected_beside_a_body(remainder: bytes) -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        replica.upstream.data_received(CHUNKED[: -len(b"0\r\nx-sum: 5\r\n\r\n")])
        for part in (remainder, *([b"a" * 1024] * (MOST_HEAD // 1024 + 1))):
            replica.upstream.data_received(part)
        await sending
        with pytest.raises(AnswerCutShort):
            await replica.body()
            await replica.body()
        replica.upstream.data_received(b"a")
        assert replica.wire.aborted

    play(story)


def test_a_body_of_many_chunks_is_as_long_as_it_likes() -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        replica.upstream.data_received(CHUNKED[: CHUNKED.index(b"2\r\n")])
        await sending
        for _ in range(2 * MOST_HEAD // 1024):
            for part in (b"1;" + b"x" * 1000 + b"\r\n", b"a", b"\r\n"):
                replica.upstream.data_received(part)
        assert len(await replica.upstream.part()) == 2 * MOST_HEAD // 1024

    play(story)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", SIZED + SIZED),
        ("GET", SIZED.replace(b"X-A: 1", b"Connection: close")),
        ("GET", SIZED.replace(b"HTTP/1.1", b"HTTP/1.0")),
        ("HEAD", SIZED),  # a body that an answer to HEAD mustn't have
    ],
)
def test_a_connection_with_more_or_without_a_future_isnt_used_again(method: str, answer: bytes) -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request(method)
        replica.upstream.data_received(answer)
        await sending
        assert await replica.body() == (b"" if method == "HEAD" else b"hello")
        replica.upstream.release()
        assert replica.idle == [] and replica.wire.aborted

    play(story)


def test_an_answer_to_head_has_no_body_and_the_connection_is_kept() -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request("HEAD")
        replica.upstream.data_received(SIZED.removesuffix(b"hello"))
        await sending
        assert await replica.body() == b""
        replica.upstream.release()
        sending = await replica.begin_request()
        replica.upstream.data_received(SIZED)
        await sending
        assert await replica.body() == b"hello"

    play(story)


def test_no_more_is_read_than_the_client_takes_in_time() -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        replica.upstream.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        await sending
        replica.upstream.data_received(bytes(BUFFER + 1))
        assert not replica.wire.reading
        await replica.pass_time(2 * IDLE)
        assert not replica.wire.aborted, "it is the client who is slow"
        assert len(await replica.upstream.part()) == BUFFER + 1
        assert replica.wire.reading

    play(story)


def test_a_replica_that_says_nothing_is_given_up() -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        for _ in range(int(IDLE // IDLE_SECONDS)):
            assert not sending.done()
            await replica.pass_time(IDLE_SECONDS)
        with pytest.raises(HttpProblem) as found:
            await sending
        assert found.value.status == 504 and replica.wire.aborted

    play(story)


def test_a_connection_that_nobody_needs_is_closed() -> None:
    async def story(replica: Replica) -> None:
        sending = await replica.begin_request()
        replica.upstream.data_received(SIZED)
        await sending
        await replica.body()
        replica.upstream.release()
        await replica.pass_time(IDLE_SECONDS - 1)
        assert not replica.wire.aborted
        await replica.pass_time(1)
        assert replica.wire.aborted
        replica.upstream.connection_lost(None)
        assert replica.idle == []

    play(story)


def test_what_a_replica_says_unasked_ends_the_connection() -> None:
    async def story(replica: Replica) -> None:
        replica.upstream.data_received(SIZED)
        assert replica.wire.aborted

    play(story)


def test_the_length_of_a_request_is_what_is_sent() -> None:
    headers = [(b"host", b"a"), (b"content-length", b"00000000000000000005")]
    assert written("POST", b"/x", headers, b"hello") == b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"
    assert written("GET", b"/x", headers[:1], b"") == b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


# --- bodies that follow -----------------------------------------------------------------------------------------------


class Coming:
    """A body whose parts come when the test says so."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self.left = False

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            while part := await self.parts.get():
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            self.left = True


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def following(story: Callable[[Replica, Coming, asyncio.Task[None]], Coroutine[Any, Any, None]]) -> None:
    async def run(replica: Replica) -> None:
        body = Coming()
        sending = asyncio.create_task(replica.upstream.send_request("POST", b"head ", framed(body.pieces(), None)))
        body.parts.put_nowait(b"part")
        await turn()
        assert replica.wire.sent == b"head 4\r\npart\r\n"
        await story(replica, body, sending)

    play(run)


def test_a_body_goes_on_in_chunks_of_our_own_and_the_connection_is_used_again() -> None:
    async def story(replica: Replica, body: Coming, sending: asyncio.Task[None]) -> None:
        body.parts.put_nowait(b"")
        await turn()
        assert replica.wire.sent.endswith(b"0\r\n\r\n")
        replica.upstream.data_received(SIZED)
        await sending
        assert await replica.body() == b"hello"
        replica.upstream.release()
        assert replica.idle == [replica.upstream]

    following(story)


def test_a_connection_whose_request_isnt_at_its_end_isnt_used_again() -> None:
    async def story(replica: Replica, body: Coming, sending: asyncio.Task[None]) -> None:
        replica.upstream.data_received(SIZED)
        await sending
        assert await replica.body() == b"hello"
        replica.upstream.release()
        assert replica.idle == [] and replica.wire.aborted
        await turn()
        assert body.left

    following(story)


def test_who_asks_again_has_the_body_alone() -> None:
    async def story(replica: Replica, body: Coming, sending: asyncio.Task[None]) -> None:
        replica.upstream.connection_lost(None)
        with pytest.raises(Unanswered):
            await sending
        replica.upstream.release()
        await replica.upstream.stopped()
        assert body.left

    following(story)


@pytest.mark.parametrize("problem", [ClientGone(), too_large(5), TimeoutError()])
def test_what_stops_the_body_stops_the_request(problem: Exception) -> None:
    async def story(replica: Replica, body: Coming, sending: asyncio.Task[None]) -> None:
        body.parts.put_nowait(problem)
        with pytest.raises(type(problem)):
            await sending
        assert replica.wire.aborted

    following(story)


def test_nothing_is_taken_of_the_body_that_the_replica_doesnt_read() -> None:
    async def story(replica: Replica, body: Coming, sending: asyncio.Task[None]) -> None:
        replica.upstream.pause_writing()
        for _ in range(3):
            body.parts.put_nowait(b"more")
        await turn()
        assert body.parts.qsize() == 2 and replica.wire.sent.count(b"more") == 0
        replica.upstream.resume_writing()
        await turn()
        assert body.parts.empty() and replica.wire.sent.count(b"more") == 3
        sending.cancel()

    following(story)


@pytest.mark.parametrize(("size", "parts"), [(5, [b"he", b"llo"]), (4, [b"hello"]), (6, [b"hello"]), (0, [])])
def test_a_body_is_as_long_as_was_announced_or_isnt_sent_to_its_end(size: int, parts: list[bytes]) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def sent() -> bytes:
        return b"".join([part async for part in framed(pieces(), size)])

    if size == len(b"".join(parts)):
        assert asyncio.run(sent()) == b"".join(parts)
    else:
        with pytest.raises(ClientGone):
            asyncio.run(sent())


@pytest.mark.parametrize(
    ("headers", "body", "frame"),
    [
        ([], b"", []),
        ([(b"content-length", b"0")], b"", [b"content-length: 0"]),
        ([(b"content-length", b"9")], b"body", [b"content-length: 4"]),
        ([], b"body", [b"content-length: 4"]),
        ([(b"transfer-encoding", b"chunked")], b"body", [b"content-length: 4"]),
    ],
)
def test_where_a_body_ends_is_our_own_word(headers: list[tuple[bytes, bytes]], body: bytes, frame: list[bytes]) -> None:
    head, _, remainder = written("POST", b"/x", [(b"host", b"a"), *headers], body).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [b"POST /x HTTP/1.1", b"host: a", *frame] and remainder == body
    for announced, line in ((None, b"transfer-encoding: chunked"), (7, b"content-length: 7")):
        assert begun("POST", b"/x", [(b"host", b"a"), *headers], announced).split(b"\r\n")[2:] == [line, b"", b""]

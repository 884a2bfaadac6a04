"""Pairs of what a client sends to a door and what a replica gets of it, drawn from a number and judged.

A client's bytes are drawn: a few requests on one connection, framed well or badly, with headers of one hop, a
`Connection` that names anything, and bodies that look like requests. A strict parser (h11) says what these bytes mean.
The door may refuse any of it, but whatever reaches a replica must be one of those requests, whole and as it was, in
bytes that the strict parser takes; and the answers on the client's connection must be those of its own requests, in
their order.

Each request has a mark ("m12x1z": the second of connection 12) in its target, a header and its body, by which it is
known wherever it turns up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import h11

MOST = 1 << 20  # bytes of a head for the strict parser
MARK = re.compile(rb"m\d+x\d+z")
POISON = b"poison"  # in what a replica sends beyond an answer
PLANS = (
    "plain", "plain", "plain", "chunks", "close", "empty", "notmodified", "overfull", "surplus", "headbody", "hints",
    "early", "both", "listed", "short", "twice", "old", "trailers",
)  # fmt: skip
_METHODS = ("GET", "GET", "POST", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH")
_NAMED = (
    "content-length", "Content-Length", "host", "Host", "transfer-encoding", "x-mark", "keep-alive", "close", "te",
    "upgrade", "expect", "x-forwarded-for", "authorization", "cookie", "x-hop", "content-type", "connection", "",
)  # fmt: skip
_ENCODINGS = (
    "Transfer-Encoding: chunked", "transfer-encoding:\tchunked", "Transfer-Encoding: Chunked",
    "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: \"chunked\"", "Transfer_Encoding: chunked", "Transfer-Encoding:",
    "Transfer-Encoding: chunked;q=1",
    "X: a\r\n Transfer-Encoding: chunked", "Transfer-Encoding:\r\n chunked", "X: a\nTransfer-Encoding: chunked",
    "X: a\rTransfer-Encoding: chunked", "\0Transfer-Encoding: chunked",
)  # fmt: skip
_LENGTHS = (
    "Content-Length: %d", "Content-Length: %d", "content-length:%d", "Content-Length: +%d", "Content-Length: %d, %d",
    "Content-Length: %d\r\nContent-Length: %d", "Content-Length : %d", "Content-Length: 0x%x", "Content-Length: %d ",
    "Content-Length: %d;", "Content-Length: %d\r\nContent-Length: 0", "Content-Length: -%d", "Content_Length: %d",
    "Content-Length:\r\n %d", "Content-Length: 00%d", "Content-Length: %d.0", "Content-Length:",
    "X: a\nContent-Length: %d",
)  # fmt: skip
_HEADERS = (
    "Expect: 100-continue", "Expect: else", "TE: trailers", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive",
    "Proxy-Authorization: Basic x", "Trailer: x-sum", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    "Connection: Upgrade\r\nUpgrade: h2c", "Connection: Upgrade\r\nUpgrade: other", "X_Forwarded_For: 6.6.6.6",
    "Forwarded: for=6.6.6.6;host=bank.example", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Host: bank.example",
    "X-Request-Id: mine", "X-Request-Id: a b\r\nX-Request-Id: c", "X-Long: " + "y" * 3000, "X.Dotted: 1", "X-Empty:",
    "Cookie: a=1", "Content-Type: text/plain", "x-hop: 1", "X-Odd: caf\xc3\xa9", "Range: bytes=0-1", "Max-Forwards: 0",
    "Content-Encoding: gzip",
)  # fmt: skip
_BAD = (
    "Host:",
    "X-Odd: \x80\xff",
    ": nameless",
    "X Spaced: 1",
    "X(Bracket): 1",
    "X: a\r\n folded",
    "Nothing",
    "X: a\x01b",
)
_SPOILERS = (b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"\x0b", b"\x7f", b"\x80", b"0", b"f")


@dataclass(frozen=True)
class Drawn:
    """What one client sends on its connection, in these pieces."""

    number: int
    pieces: tuple[bytes, ...]

    @property
    def bytes(self) -> bytes:
        return b"".join(self.pieces)


@dataclass(frozen=True)
class ReadRequest:
    """A request as the strict parser reads it."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    complete: bool = True

    def value(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key == name]

    @property
    def mark(self) -> bytes:
        found = MARK.search(self.target) or MARK.search(b" ".join(self.value(b"x-mark")))
        return found[0] if found else b""


@dataclass
class Meaning:
    """What a client's bytes mean: these requests, and then nothing, or bytes that are none."""

    requests: list[ReadRequest] = field(default_factory=list)
    spoilt: str = ""

    @property
    def odd_ends(self) -> bool:
        """Does it end in a chunked body, or at a line with two carriage returns?"""
        last = self.requests[-1] if self.requests else None
        return "\\r')" in self.spoilt or (
            last is not None and not last.complete and bool(last.value(b"transfer-encoding"))
        )


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(seed: int, number: int, host: str) -> Drawn:
    rng = random.Random(f"{seed}/doors/{number}")
    sent = b"".join(_request(rng, f"m{number}x{place}z", host) for place in range(rng.choice((1, 2, 2, 3, 4))))
    if rng.random() < 0.08:
        at = rng.choice(_between_marks(sent))
        sent = sent[:at] + rng.choice(_SPOILERS) + sent[at + rng.randrange(2) :]
    cuts = sorted(rng.randrange(len(sent)) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3))))
    pieces = [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    return Drawn(number, tuple(piece for piece in pieces if piece))


def _between_marks(sent: bytes) -> list[int]:
    """Where bytes may be spoilt: a spoilt mark would be another's."""
    taken = {at for found in MARK.finditer(sent) for at in range(found.start(), found.end() + 1)}
    return [at for at in range(len(sent)) if at not in taken]


def _request(rng: random.Random, mark: str, host: str) -> bytes:
    method = rng.choice(_METHODS)
    target = f"/{mark}?plan={rng.choice(PLANS)}"
    if rng.random() < 0.06:
        there = rng.choice((host, host.upper(), f"else.{host}", "bank.example", f"{host}:1", f"x@{host}"))
        target = f"{rng.choice(('http', 'http', 'https', 'ftp', 'HTTP'))}://{there}{target}"
    lines = [f"X-Mark: {mark}", *rng.sample(_HEADERS, rng.choice((0, 0, 1, 1, 2, 3)))]
    lines += rng.sample(_BAD, rng.random() < 0.04)
    version = rng.choices(("HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "http/1.1", "HTTP/2.0"), (90, 4, 1, 1, 1))[0]
    if rng.random() < 0.4 and version != "HTTP/1.0":  # whose connections the strict parser never keeps
        lines.append("Connection: " + ", ".join(rng.choices(_NAMED, k=rng.choice((1, 1, 2, 3)))))
    body, framing = _body(rng, mark, host)
    if method in ("POST", "PUT", "PATCH") or rng.random() < 0.25:
        lines += framing
    else:
        body = b""
    hosts = rng.choices(([f"Host: {host}"], [f"Host: {host}", f"Host: else.{host}"], []), (100, 1, 1))[0]
    lines = hosts + lines if rng.random() < 0.8 else lines + hosts
    end = rng.choices(("\r\n", "\n"), (100, 1))[0]
    head = end.join([f"{method} {target} {version}", *lines, "", ""])
    return head.encode("latin-1") + body


def _body(rng: random.Random, mark: str, host: str) -> tuple[bytes, list[str]]:
    body = b" ".join([mark.encode()] * rng.choice((0, 1, 1, 2, 50, 400)))
    if rng.random() < 0.5:  # a request, for whoever takes it for one
        body += f"GET /{mark}?smuggled HTTP/1.1\r\nHost: {host}\r\nX-Mark: {mark}\r\n\r\n".encode()
    if rng.random() < 0.02:
        body += mark.encode() * 20_000
    if rng.random() < 0.5:
        size = len(body) if rng.random() < 0.93 else max(0, len(body) + rng.choice((-60, -9, -1, 1, 7)))
        return body, [_filled(_LENGTHS[0] if rng.random() < 0.85 else rng.choice(_LENGTHS), size)]
    framing = [_ENCODINGS[0] if rng.random() < 0.85 else rng.choice(_ENCODINGS)]
    if rng.random() < 0.04:
        framing.insert(rng.randrange(2), _filled(rng.choice(_LENGTHS), len(body)))
    return _chunked(rng, body), framing


def _filled(line: str, size: int) -> str:
    return line % tuple([size] * line.count("%"))


_SIZES = (  # of a chunk, with what may stand in their place
    b"%b", b"%b", b"%b", b"0%b", b"%b;ext=1", b'%b ;e="\r\n"', b"%b ", b"+%b", b"0x%b", b"%b;", b" %b", b"%b;a\n",
    b"fffffffffffffff%b",
)  # fmt: skip
_LASTS = (
    b"0\r\nx-sum: 1\r\n\r\n", b"0\r\ncontent-length: 5\r\n\r\n", b"000\r\n\r\n", b"0;x\r\n\r\n", b"0\n\n", b"0\r\n",
    b"",
    b"0\r\nhost: bank.example\r\n\r\n", b"-0\r\n\r\n", b"0\r\n\n", b"\r\n0\r\n\r\n",
)  # fmt: skip


def _chunked(rng: random.Random, body: bytes) -> bytes:
    parts, at, odd = [], 0, rng.random() < 0.1
    while at < len(body):
        part = body[at : at + rng.choice((1, 5, 60, 4000, 100_000))]
        at += len(part)
        size = (rng.choice(_SIZES) if odd else b"%b") % (b"%x" % len(part))
        end = rng.choice((b"\r\n", b"\r\n", b"\n", b"\r", b"")) if odd and rng.random() < 0.2 else b"\r\n"
        parts.append(size + b"\r\n" + part + end)
    return b"".join(parts) + (rng.choice(_LASTS) if odd or rng.random() < 0.03 else b"0\r\n\r\n")


# --- what it means ----------------------------------------------------------------------------------------------------


_BLANKS = re.compile(rb"\A([!-~]+) +([!-~]+) +(HTTP/)")


class Reader:
    """Requests of one connection, as the strict parser reads them from its bytes."""

    def __init__(self, *, blanks: bool = False) -> None:
        """`blanks`: may there be empty lines before a request, and several blanks in its first line, as RFC 9112 allows
        servers to read it? Whole requests have to come then."""
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST)
        self._blanks, self._head, self._body = blanks, None, bytearray()  # type: bool, h11.Request | None, bytearray
        self.wrong, self._over, self._begun = "", False, False

    @property
    def open(self) -> ReadRequest | None:
        """The request whose end hasn't come."""
        return self._made(complete=False) if self._head is not None else None

    def feed(self, data: bytes) -> list[ReadRequest]:
        found: list[ReadRequest] = []
        try:
            while (data or not self._begun) and not self._over:
                if self._blanks and not self._begun:
                    data = _BLANKS.sub(rb"\1 \2 \3", data.lstrip(b"\r\n"), count=1)
                if not data:
                    break
                self._begun = True
                self._parser.receive_data(data)
                data = b""
                while (event := self._parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                    if isinstance(event, h11.Request):
                        self._head = event
                    elif isinstance(event, h11.Data):
                        self._body += event.data
                    elif isinstance(event, h11.EndOfMessage):
                        found.append(self._made(complete=True))
                        data = self._next()
                        break
                    else:
                        return found
        except h11.RemoteProtocolError as wrong:
            self.wrong = str(wrong) or "no request"
        return found

    def _made(self, *, complete: bool) -> ReadRequest:
        assert self._head is not None
        return ReadRequest(self._head.method, self._head.target, tuple(self._head.headers), bytes(self._body), complete)

    def _next(self) -> bytes:
        """What follows, for a parser of its own; nothing where nothing may follow."""
        self._head, self._body, self._begun = None, bytearray(), False
        self._parser.send(h11.Response(status_code=204, headers=[]))
        self._parser.send(h11.EndOfMessage())
        self._over = self._parser.our_state is not h11.DONE or self._parser.their_state is not h11.DONE
        rest, _ = self._parser.trailing_data
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST)
        return rest


def meaning(sent: bytes) -> Meaning:
    reader = Reader(blanks=True)
    found = Meaning(reader.feed(sent))
    if reader.open is not None:
        found.requests.append(reader.open)
    found.spoilt = reader.wrong
    return found


# --- judging ----------------------------------------------------------------------------------------------------------

_FRAMING = (b"content-length", b"transfer-encoding")
_HOP = (
    b"keep-alive",
    b"proxy-connection",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"expect",
    b"http2-settings",
    b"upgrade",
)


def judge_seen(meant: Meaning, seen: ReadRequest) -> list[str]:
    """What is wrong with a request that reached a replica and has a mark of this client's."""
    path = seen.target
    for one in meant.requests:
        if _path(one.target) != path or one.method != seen.method:
            continue
        if seen.complete and not (one.complete and one.body == seen.body):
            continue
        if not seen.complete and not one.body.startswith(seen.body):
            continue
        return _judge_headers(one, seen)
    return [f"a replica got a request that nobody sent: {seen.method!r} {path!r}, a body of {len(seen.body)}"]


def _path(target: bytes) -> bytes:
    return re.sub(rb"^[a-zA-Z]+://[^/]*", b"", target)


def _judge_headers(sent: ReadRequest, seen: ReadRequest) -> list[str]:
    named = b",".join(sent.value(b"connection")).lower()
    same = [name for name in (b"host", b"x-mark") if name == b"host" or name not in named]
    found = [
        f"a replica got {seen.value(name)} as {name.decode()} in the place of {sent.value(name)}"
        for name in same
        if seen.value(name) != sent.value(name)
    ]
    framing = [(name, value) for name, value in seen.headers if name in _FRAMING]
    if len(framing) > 1 or (seen.body and not framing):
        found.append(f"a replica got a body framed by {framing}")
    if spelt := [name for name, _ in seen.headers if name.replace(b"_", b"-") in _FRAMING and b"_" in name]:
        found.append(f"a replica got {spelt}, which some take for framing")
    if hop := [name for name, _ in seen.headers if name in _HOP]:
        found.append(f"a replica got headers of another hop: {hop}")
    if [value for value in seen.value(b"forwarded") + seen.value(b"x-forwarded-host") if b"bank" in value]:
        found.append("a replica got what a client says about itself as ours")
    if not seen.value(b"x-forwarded-for") or not seen.value(b"x-forwarded-for")[-1].endswith(b"127.0.0.1"):
        found.append(f"a replica got X-Forwarded-For: {seen.value(b'x-forwarded-for')}")
    return found


def judge_answers(drawn: Drawn, meant: Meaning, got: bytes, *, ended: bool, strictly: bool = True) -> list[str]:
    """What is wrong with the answers that this client got. `strictly`: door and strict parser agree on its requests."""
    found = (
        [f"a client got what no replica answered: {got[max(0, got.find(POISON) - 200) :][:260]!r}"]
        if POISON in got
        else []
    )
    if strange := {mark for mark in MARK.findall(got) if mark not in drawn.bytes}:
        found.append(f"a client got the answer of another: {strange}")
    rest, place = got, 0
    while rest and place < len(meant.requests):
        one = meant.requests[place]
        answer = read_answer(one.method, rest, ended=ended)
        if isinstance(answer, str):
            return [*found, f"a client got no HTTP: {answer}, {rest[:200]!r}"]
        if answer.mark and answer.mark != one.mark:
            found.append(f"a client got the answer of {answer.mark!r} to {one.mark!r}")
        if not answer.complete or answer.closes:
            return [*found, f"more follows the last answer: {answer.remainder[:100]!r}"] if answer.remainder else found
        rest, place = answer.remainder, place + 1
    if strictly and rest and b"x-replica:" in rest.lower():
        found.append(f"a client got an answer to what is no request: {rest[:200]!r}")
    return found


@dataclass(frozen=True)
class Answer:
    status: int
    mark: bytes  # of the request that the replica answered; empty: the door's own
    complete: bool
    closes: bool
    remainder: bytes


def read_answer(method: bytes, got: bytes, *, ended: bool) -> Answer | str:
    """The first answer in these bytes, as the strict parser reads it, or what is wrong. `ended`: that is all."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST)
    parser.send(h11.Request(method=method, target="/", headers=[("host", "h")]))
    parser.send(h11.EndOfMessage())
    status, mark, closes, complete = 0, b"", False, False
    try:
        parser.receive_data(got)
        if ended:
            parser.receive_data(b"")
        while not complete:
            event = parser.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                break
            if isinstance(event, h11.Response):
                status, closes = event.status_code, (b"connection", b"close") in list(event.headers)
                mark = next((value for name, value in event.headers if name == b"x-mark"), b"")
            complete = isinstance(event, h11.EndOfMessage)
    except h11.RemoteProtocolError as wrong:
        if ("peer" in str(wrong) and "closed" in str(wrong)) or "ConnectionClosed" in str(wrong):
            return Answer(status, mark, False, True, b"")
        return str(wrong)
    return Answer(status, mark, complete, closes, parser.trailing_data[0] if complete else b"")


def expected(meant: Meaning) -> int:
    """The answers after which nothing more comes."""
    return sum(each.complete for each in meant.requests) + bool(meant.spoilt)


def counted(meant: Meaning, got: bytes) -> int:
    """How many whole answers are here."""
    count, rest = 0, got
    methods: Sequence[bytes] = [each.method for each in meant.requests]
    while rest and count < len(methods):
        answer = read_answer(methods[count], rest, ended=False)
        if isinstance(answer, str) or not answer.complete:
            break
        rest, count = answer.remainder, count + 1
    return count


# --- what a replica answers -------------------------------------------------------------------------------------------


def plan_of(request: ReadRequest) -> str:
    found = re.search(rb"plan=(\w+)", request.target)
    return found[1].decode() if found and found[1].decode() in PLANS else "plain"


def answer(plan: str, request: ReadRequest) -> tuple[bytes, bool]:
    """An answer of this kind, and whether the replica's connection goes on."""
    mark = b"x-mark: " + request.mark + b"\r\n"
    body, head = b"answer to " + request.mark, request.method == b"HEAD"
    sized = b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n" % (mark, len(body))
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    chunked = b"HTTP/1.1 200 OK\r\n" + mark + b"transfer-encoding: chunked\r\n"
    extra = b"HTTP/1.1 200 OK\r\nx-mark: poison\r\ncontent-length: 6\r\n\r\npoison"
    shown = b"" if head else body
    answers = {
        "chunks": (chunked + b"\r\n" + (b"" if head else chunks + b"0\r\n\r\n"), True),
        "trailers": (chunked + b"\r\n" + (b"" if head else chunks + b"0\r\nx-sum: 1\r\n\r\n"), True),
        "close": (b"HTTP/1.1 200 OK\r\n" + mark + b"connection: close\r\n\r\n" + shown, False),
        "empty": (b"HTTP/1.1 204 No Content\r\n" + mark + b"\r\n", True),
        "notmodified": (b"HTTP/1.1 304 Not Modified\r\n" + mark + b"content-length: 10\r\n\r\n", True),
        "overfull": (b"HTTP/1.1 204 No Content\r\n" + mark + b"\r\n" + extra, False),
        "surplus": (sized + shown + extra, False),
        "headbody": (sized + body + (extra if head else b""), not head),
        "hints": (b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + sized + shown, True),
        "both": (chunked + b"content-length: 5\r\n\r\n" + (b"" if head else chunks + b"0\r\n\r\n"), False),
        "listed": (sized.replace(b"\r\n\r\n", b"\r\nconnection: content-length, x-mark\r\n\r\n") + shown, True),
        "short": (sized.replace(b"content-length: ", b"content-length: 9") + shown, False),
        "twice": (sized.replace(b"\r\n\r\n", b"\r\ncontent-length: 3\r\n\r\n") + shown, False),
        "old": (b"HTTP/1.0 200 OK\r\n" + mark + b"\r\n" + shown, False),
    }
    return answers.get(plan, (sized + shown, True))


def connections(requests: int) -> int:
    """How many connections carry so many requests."""
    return requests * 10 // 17

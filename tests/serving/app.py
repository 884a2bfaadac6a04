"""An application to put behind a door: it says what it got, and misbehaves on request.

    python -m tests.serving.app [--port N] [--unix PATH] [--name NAME]

It prints `ready PORT PID` once it listens; the port is $DSTACK_SERVICE_PORT unless given, or any free one. Written on
plain sockets, so that it can do what no HTTP library would let it do. Its paths:

    /echo                        what it got, as JSON: method, target, headers, length and digest of the body
    /status/CODE                 an empty response with this status
    /delay?s=S                   a response after S seconds
    /bytes?n=N[&chunked=1]       N bytes
    /stream?n=N&gap=S[&fail=K][&pace=KEY][&late=KEY]  N events, S seconds apart or each let go by /step, as is the first
                               one with `late`; it is cut at the Kth
    /step?key=K                  lets the stream of this pace go on by one event
    /posing                      headers that are a door's to set, and one for the next hop only
    /gzip /cookies /redirect /trailers /early-hints        what the names say
    /cut?how=none|head|length|chunks     the connection ends without a response, in its head, or in its body
    /odd?how=status|switch|header|long|else      what isn't HTTP, each in its way
    /once?key=K                  the first request with this key is cut before a response, later ones are answered
    /wait?key=K                  no response, until the client leaves
    /refuse                      413 without reading the body, and the connection ends
    /seen                        how often each key came, and which of those that wait have been left
    /ws                          a WebSocket that sends back what it gets; /ws-refused: 403 for the upgrade
    /v1/models /v1/chat/completions      as OpenAI's, the latter with `stream`, `n_tokens`, `gap`, `pace` and `fail`
    /v1/responses                POST makes one, with an id that names this replica; the rest is as /echo
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import hashlib
import json
import os
import struct
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
OWN_PAGE = "https://its-own.example"  # a page that /echo lets read its answer by itself
SHOWN = 64 * 1024  # bytes of a body that /echo repeats


class Cut(Exception):
    """The connection ends here."""


@dataclass
class AppRequest:
    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def arg(self, name: str, otherwise: str = "") -> str:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True).get(name, [otherwise])[-1]

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    async def body(self) -> AsyncIterator[bytes]:
        if self.header("expect").lower() == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in self.header("transfer-encoding").lower():
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            while await self.reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return
        left = int(self.header("content-length") or 0)
        while left:
            part = await self.reader.read(min(left, 65536))
            if not part:
                raise Cut
            left -= len(part)
            yield part


@dataclass
class App:
    name: str = "replica"
    came: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    steps: defaultdict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(0))
    )

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader, writer)) is not None:
                self.requests += 1
                await self.answer(request)
                await writer.drain()
                if request.header("connection").lower() == "close":
                    break
        except (Cut, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, request: AppRequest) -> None:
        for start, handler in self.routes().items():
            if request.path == start or (start.endswith("/") and request.path.startswith(start)):
                await handler(request)
                return
        await self.echo(request)

    def routes(self) -> dict[str, Callable[[AppRequest], Awaitable[None]]]:
        return {
            "/status/": self.status,
            "/delay": self.delay,
            "/bytes": self.some,
            "/stream": self.stream,
            "/step": self.step,
            "/gzip": self.zipped,
            "/cookies": self.cookies,
            "/posing": self.posing,
            "/redirect": self.redirect,
            "/trailers": self.trailers,
            "/early-hints": self.hints,
            "/cut": self.cut,
            "/odd": self.odd,
            "/once": self.once,
            "/wait": self.wait,
            "/refuse": self.refuse,
            "/at-once": self.at_once,
            "/named": self.named,
            "/seen": self.seen,
            "/ws": self.websocket,
            "/ws-refused": self.no_websocket,
            "/v1/models": self.models,
            "/v1/chat/completions": self.chat,
            "/v1/responses": self.respond,
        }

    # --- what it got ----------------------------------------------------------------------------------------------

    async def echo(self, request: AppRequest) -> None:
        digest, length, shown = hashlib.sha256(), 0, b""
        async for part in request.body():
            digest.update(part)
            length += len(part)
            shown += part[: SHOWN - len(shown)]
        found = {
            "replica": self.name,
            "method": request.method,
            "target": request.target,
            "version": request.version,
            "headers": [[name.lower(), value] for name, value in request.headers],
            "length": length,
            "sha256": digest.hexdigest(),
            "body": shown.decode("latin-1"),
        }
        pages = [("access-control-allow-origin", OWN_PAGE)] if request.header("origin") == OWN_PAGE else []
        _write_response(request, json.dumps(found).encode(), ("content-type", "application/json"), *pages)

    async def seen(self, request: AppRequest) -> None:
        found = {"requests": self.requests, "came": self.came, "left": self.left}
        _write_response(request, json.dumps(found).encode(), ("content-type", "application/json"))

    # --- plain responses ------------------------------------------------------------------------------------------

    async def status(self, request: AppRequest) -> None:
        await _read(request)
        code = int(request.path.rpartition("/")[2])
        head = f"HTTP/1.1 {code} Whatever\r\n"
        end = "\r\n" if code in (204, 304) else "content-length: 0\r\n\r\n"
        request.writer.write((head + end).encode() + _surplus(request))

    async def delay(self, request: AppRequest) -> None:
        await _read(request)
        await asyncio.sleep(float(request.arg("s", "0")))
        _write_response(request, self.name.encode())

    async def some(self, request: AppRequest) -> None:
        await _read(request)
        count, chunked = int(request.arg("n", "0")), bool(request.arg("chunked"))
        head = "transfer-encoding: chunked" if chunked else f"content-length: {count}"
        request.writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n{head}\r\n\r\n".encode())
        if request.method == "HEAD":
            return
        while count:
            part = bytes(min(count, 65536))
            count -= len(part)
            request.writer.write(_chunk(part) if chunked else part)
            await request.writer.drain()
        request.writer.write(b"0\r\n\r\n" if chunked else b"")

    async def zipped(self, request: AppRequest) -> None:
        _write_response(request, gzip.compress(b"squeezed" * 100, mtime=0), ("content-encoding", "gzip"))

    async def cookies(self, request: AppRequest) -> None:
        given = request.arg("set").split("|") if request.arg("set") else ["a=1; Path=/", "b=2"]
        _write_response(request, request.header("cookie").encode(), *(("set-cookie", each) for each in given))

    async def posing(self, request: AppRequest) -> None:
        _write_response(
            request, b"", ("x-replica", "another"), ("connection", "x-hop"), ("x-hop", "1"), ("x-stays", "1")
        )

    async def redirect(self, request: AppRequest) -> None:
        request.writer.write(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere?x=1\r\ncontent-length: 0\r\n\r\n")

    async def trailers(self, request: AppRequest) -> None:
        request.writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n")
        request.writer.write(_chunk(b"whole") + b"0\r\nx-sum: 5\r\n\r\n")

    async def hints(self, request: AppRequest) -> None:
        request.writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n")
        _write_response(request, b"after the hints")

    # --- misbehaviour ---------------------------------------------------------------------------------------------

    async def cut(self, request: AppRequest) -> None:
        await _read(request)
        self.came["cut"] += 1
        sent = {
            "head": b"HTTP/1.1 200 OK\r\ncontent-le",
            "length": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of it",
            "chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + _chunk(b"half of it"),
        }
        request.writer.write(sent.get(request.arg("how"), b""))
        await request.writer.drain()
        raise Cut

    async def odd(self, request: AppRequest) -> None:
        await _read(request)
        sent = {
            "status": b"HTTP/1.1 999 Odd\r\n",
            "switch": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: odd\r\nconnection: Upgrade\r\n",
            "header": b"HTTP/1.1 200 OK\r\nx-odd: a\x01b\r\n",
            "long": b"HTTP/1.1 200 OK\r\nx-odd: " + b"a" * 100_000 + b"\r\n",
            "else": b"220 mail.example ESMTP\r\n",
        }
        self.came["odd"] += 1
        request.writer.write(sent[request.arg("how")] + b"content-length: 0\r\n\r\n")

    async def once(self, request: AppRequest) -> None:
        await _read(request)
        key = request.arg("key")
        self.came[key] += 1
        if self.came[key] == 1:
            raise Cut
        _write_response(request, f"attempt {self.came[key]}".encode())

    async def wait(self, request: AppRequest) -> None:
        key = request.arg("key")
        self.came[key] += 1
        await request.reader.read()
        self.left[key] += 1
        raise Cut

    async def refuse(self, request: AppRequest) -> None:
        request.writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\nconnection: close\r\n\r\nlarge")
        await request.writer.drain()
        request.writer.write_eof()
        while await request.reader.read(65536):  # or what is unread would reset the connection
            pass
        raise Cut

    async def at_once(self, request: AppRequest) -> None:
        """Answers before it has read the body, and then reads that."""
        _write_response(request, b"at once")
        await request.writer.drain()
        await _read(request)

    async def named(self, request: AppRequest) -> None:
        _write_response(request, b"named", ("connection", "content-length, transfer-encoding"), more=_surplus(request))

    # --- streams --------------------------------------------------------------------------------------------------

    async def stream(self, request: AppRequest) -> None:
        await _read(request)
        count, gap, fail = int(request.arg("n", "10")), float(request.arg("gap", "0.02")), int(request.arg("fail", "0"))
        _events(request)
        if late := request.arg("late"):
            await request.writer.drain()
            self.came[late] += 1
            await self._pause(late, 0)
        for number in range(1, count + 1):
            if number == fail:
                raise Cut
            await _event(request, json.dumps({"n": number}))
            await self._pause(request.arg("pace"), gap)
        request.writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    async def step(self, request: AppRequest) -> None:
        self.steps[request.arg("key")].release()
        _write_response(request, b"")

    async def _pause(self, pace: str, gap: float) -> None:
        await (self.steps[pace].acquire() if pace else asyncio.sleep(gap))

    async def models(self, request: AppRequest) -> None:
        found = {"object": "list", "data": [{"id": self.name, "object": "model", "created": 0, "owned_by": "tests"}]}
        _write_response(request, json.dumps(found).encode(), ("content-type", "application/json"))

    async def chat(self, request: AppRequest) -> None:
        wanted = json.loads(await _read(request) or b"{}")
        tokens, gap, fail = wanted.get("n_tokens", 5), wanted.get("gap", 0.0), wanted.get("fail", 0)
        pace = wanted.get("pace", "")
        made = {"id": "chat-1", "created": 0, "model": wanted.get("model", "")}
        usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": tokens + 3}
        texts = [f"{self.name}-{number} " for number in range(tokens)]
        if not wanted.get("stream"):
            message = {"role": "assistant", "content": "".join(texts)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            answer = {**made, "object": "chat.completion", "choices": [choice], "usage": usage}
            _write_response(request, json.dumps(answer).encode(), ("content-type", "application/json"))
            return
        made["object"] = "chat.completion.chunk"
        _events(request)
        for number, text in enumerate(texts, 1):
            if number == fail:
                raise Cut
            choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
            await _event(request, json.dumps({**made, "choices": [choice]}))
            await self._pause(pace, gap)
        last = {**made, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        await _event(request, json.dumps(last))
        if (wanted.get("stream_options") or {}).get("include_usage"):
            await _event(request, json.dumps({**made, "choices": [], "usage": usage}))
        await _event(request, "[DONE]")
        request.writer.write(b"0\r\n\r\n")

    async def respond(self, request: AppRequest) -> None:
        wanted = json.loads(await _read(request))
        self.came["responses"] += 1
        made = {"id": f"resp_{self.name}_{self.came['responses']}", "object": "response", "model": wanted["model"]}
        if not wanted.get("stream"):
            _write_response(request, json.dumps(made).encode(), ("content-type", "application/json"))
            return
        _events(request)
        await _event(request, json.dumps({"type": "response.created", "response": made}))
        await _event(request, json.dumps({"type": "response.completed", "response": made}))
        request.writer.write(b"0\r\n\r\n")

    # --- WebSockets -----------------------------------------------------------------------------------------------

    async def no_websocket(self, request: AppRequest) -> None:
        _write_response(request, b"not here", status="403 Forbidden")

    async def websocket(self, request: AppRequest) -> None:
        if request.header("upgrade").lower() != "websocket":
            _write_response(request, b"say it as a WebSocket", status="426 Upgrade Required")
            return
        accept = base64.b64encode(hashlib.sha1(request.header("sec-websocket-key").encode() + GUID).digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        if request.header("sec-websocket-protocol"):
            head += b"sec-websocket-protocol: " + request.header("sec-websocket-protocol").encode() + b"\r\n"
        request.writer.write(head + b"sec-websocket-accept: " + accept + b"\r\n\r\n")
        self.came["ws"] += 1
        try:
            while True:
                opcode, payload = await _frame(request.reader)
                request.writer.write(_framed(opcode if opcode != 9 else 10, payload))
                await request.writer.drain()
                if opcode == 8:
                    break
        finally:
            self.left["ws"] += 1
        raise Cut


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AppRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, version = first.split(" ")
    parted = [line.partition(":") for line in lines]
    return AppRequest(method, target, version, [(name, value.strip()) for name, _, value in parted], reader, writer)


async def _read(request: AppRequest) -> bytes:
    return b"".join([part async for part in request.body()])


def _surplus(request: AppRequest) -> bytes:
    """Goes out together with the answer before it: what comes later may meet the next request."""
    return b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison" if request.arg("surplus") else b""


def _write_response(
    request: AppRequest, body: bytes, *headers: tuple[str, str], status: str = "200 OK", more: bytes = b""
) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"HTTP/1.1 {status}\r\n{lines}content-length: {len(body)}\r\n\r\n".encode()
    request.writer.write((head if request.method == "HEAD" else head + body) + more)


def _chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


def _events(request: AppRequest) -> None:
    request.writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )


async def _event(request: AppRequest, text: str) -> None:
    request.writer.write(_chunk(f"data: {text}\n\n".encode()))
    await request.writer.drain()


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack("!H", await reader.readexactly(2))
    elif size == 127:
        (size,) = struct.unpack("!Q", await reader.readexactly(8))
    mask = await reader.readexactly(4) if second & 0x80 else bytes(4)
    data = await reader.readexactly(size)
    return first & 0x0F, bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))


def _framed(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    length = b"\x7f" + struct.pack("!Q", size)
    if size < 65536:
        length = bytes([size]) if size < 126 else b"\x7e" + struct.pack("!H", size)
    return bytes([0x80 | opcode]) + length + payload


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=int(os.environ.get("DSTACK_SERVICE_PORT") or 0))
    parser.add_argument("--unix", default="")
    parser.add_argument("--name", default="replica")
    given = parser.parse_args()
    await serve(given.name, given.host, given.port, given.unix)


async def serve(name: str, host: str, port: int, unix: str) -> None:
    app = App(name)
    if unix:
        server = await asyncio.start_unix_server(app.connection, unix, backlog=1024)
        port = 0
    else:
        server = await asyncio.start_server(app.connection, host, port, backlog=1024)
        port = server.sockets[0].getsockname()[1]
    print("ready", port, os.getpid(), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

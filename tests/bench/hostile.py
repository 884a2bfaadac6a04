"""What another's health check takes while eight connections send what costs the most work a byte, one kind after the
other. The worst kind counts.

`heads`       15,000 headers, without a token, again and again
`chunks`      a body in chunks of a byte
`values`      8 MB of texts that are no JSON
`parts`       8 MB of boundaries as an upload, and a megabyte of them where a form names its model
`signs`       a megabyte of commas where JSON names its model
`frames`      WebSocket frames of a stream that carry nothing, or a byte
`answers`     a replica that answers in chunks of a byte
"""

from __future__ import annotations

import base64
import http.client
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from chalicelib.agent.streams import websocket
from tests.bench.measure import report, running_server, submit, task, wait_local_host
from tests.harness.server import ROOT, Server, until
from tests.harness.streams import Stream

CONNECTIONS, WARM, SECONDS, EVERY = 8, 1.0, 6.0, 0.02
PATIENCE = 5.0  # seconds that an attacker reads an answer
BOUNDARY = "multipart/form-data; boundary=b"
# One port swallows what it gets; the other answers each request with half a megabyte of the smallest chunks.
SERVED = """
import os, socket, threading
def swallow(call):
    while call.recv(1 << 20):
        pass
def chunks(call):
    body = b"1\\r\\nx\\r\\n" * 80000
    while call.recv(65536):
        call.sendall(b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n" + body + b"0\\r\\n\\r\\n")
def listen(serve, port):
    server = socket.create_server(("127.0.0.1", port))
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],)).start()
threading.Thread(target=listen, args=(swallow, SWALLOWS)).start()
listen(chunks, int(os.environ["DSTACK_SERVICE_PORT"]))
"""


# --- who attacks ------------------------------------------------------------------------------------------------------


def post(path: str, token: str, body: bytes, *lines: str, chunked: bool = False) -> bytes:
    frame = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    head = [f"POST {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {token}", frame, *lines, "", ""]
    return "\r\n".join(head).encode() + body


def requests(kind: str, token: str) -> list[bytes]:
    """What each connection of this kind sends, in turn."""
    if kind == "heads":
        return [b"GET /healthcheck HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * 15_000 + b"\r\n"]
    if kind == "chunks":
        return [post("/api/project/main/runs/list", token, b"1\r\n \r\n" * 500_000, chunked=True)]
    if kind == "values":
        return [post("/api/project/main/runs/list", token, b"[" + b'"",' * 2_600_000)]
    if kind == "signs":
        return [post("/proxy/models/main/chat/completions", token, b"{" + b"," * 2**20)]
    if kind == "answers":
        return [
            f"GET /proxy/services/main/served/ HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        ]
    end, type_ = b"\r\n--b--", f"Content-Type: {BOUNDARY}"
    return [
        post("/api/files/upload_archive", token, b"--b\r\n" + b"\r\n--b\r\n" * 1_000_000 + end, type_),
        post("/proxy/models/main/audio/transcriptions", token, b"--b\r\n" * 200_000 + end, type_),
    ]


def attack(kind: str, url: str, token: str, port: str) -> None:
    """One connection after the other, for ever."""
    parts = urlsplit(url)
    sent = requests(kind, token) if kind != "frames" else [empty_frames()]
    while True:
        with suppress(OSError, AssertionError):
            for each in sent:
                if kind == "frames":
                    call = Stream(url, token, "served", f"port:{port}").sock
                else:
                    call = socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=PATIENCE)
                with call:
                    call.settimeout(PATIENCE)
                    call.sendall(each)
                    if kind == "answers":
                        while call.recv(1 << 20):
                            pass
                    elif kind != "frames":
                        call.recv(65536)


def empty_frames() -> bytes:
    nothing, byte = b"\x82\x80abcd", websocket.frame(websocket.BINARY, b"x", True)
    return (nothing * 999 + byte) * 200 + byte * 200_000


# --- who asks for the health ------------------------------------------------------------------------------------------


def walls(server: Server, seconds: float) -> list[float]:
    """Milliseconds of health checks, on a new connection each time as a monitor's."""
    address, found, end = urlsplit(server.url).netloc, [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        connection = http.client.HTTPConnection(address, timeout=10)
        connection.request("GET", "/healthcheck")
        if connection.getresponse().status != 200:
            raise SystemExit("the server isn't healthy")
        connection.close()
        found.append((time.perf_counter() - begun) * 1000)
        time.sleep(EVERY)
    return found


def beside(server: Server, kind: str, port: int) -> list[float]:
    command = [sys.executable, "-m", "tests.bench.hostile", kind, server.url, server.token, str(port)]
    attackers = subprocess.Popen(command, cwd=ROOT)
    try:
        time.sleep(WARM)
        found = walls(server, SECONDS)
        return found
    finally:
        attackers.kill()
        attackers.wait()


def main() -> None:
    kinds = ("heads", "chunks", "values", "parts", "signs", "frames", "answers")
    with running_server() as server:
        wait_local_host(server)
        port = serve(server)
        quiet = walls(server, 2.0)
        found = {kind: beside(server, kind, port) for kind in kinds}
        report(
            "hostile",
            quiet_ms=quiet,
            **{f"{kind}_ms": each for kind, each in found.items()},
            health_p50_ms=[max(map(statistics.median, found.values()))],
            health_most_ms=[max(map(max, found.values()))],
        )


def serve(server: Server) -> int:
    """A service of one job, which swallows what comes to a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    program = base64.b64encode(SERVED.replace("SWALLOWS", str(port)).encode()).decode()
    spec = task("served", f"exec python3 -c 'import base64; exec(base64.b64decode(\"{program}\"))'", port=8000)
    spec["configuration"].update(type="service")
    submit(server, spec)

    def answers() -> bool:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        connection.request("GET", "/proxy/services/main/served/", headers={"Authorization": f"Bearer {server.token}"})
        return connection.getresponse().status == 200

    until("the service to answer", answers)
    return port


def every(kind: str, url: str, token: str, port: str) -> None:
    target: Callable[..., None] = attack
    for _ in range(CONNECTIONS):
        threading.Thread(target=target, args=(kind, url, token, port), daemon=True).start()
    os.nice(5)  # it is the server that is measured
    threading.Event().wait()


if __name__ == "__main__":
    every(*sys.argv[1:]) if len(sys.argv) > 1 else main()

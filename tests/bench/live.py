"""Streams through a real server and agent: megabytes a second through one, and how soon a printed line arrives."""

from __future__ import annotations

import base64
import time

from tests.bench.measure import report, running_server, submit, task, wait_local_host
from tests.harness.ports import free_ports
from tests.harness.server import Server, until
from tests.harness.streams import Stream

MB = 1_000_000
RUNS, LINES = 7, 41
# On one port megabytes as they are asked for, by a byte each; on the other, a line is printed for each byte.
SERVED = """
import socket, sys, threading, time
def many(call):
    while call.recv(1):
        for _ in range(50):
            call.sendall(bytes(1000000))
def lines(call):
    while call.recv(1):
        print(time.time(), flush=True)
def listen(serve, port):
    serve(socket.create_server(("127.0.0.1", port)).accept()[0])
for serve, port in zip((many, lines), sys.argv[1:]):
    threading.Thread(target=listen, args=(serve, int(port))).start()
print("up", flush=True)
"""


def main() -> None:
    with running_server() as server:
        wait_local_host(server)
        ports = free_ports(2)
        program = base64.b64encode(SERVED.encode()).decode()
        run = f"exec python3 -c 'import base64; exec(base64.b64decode(\"{program}\"))' {ports[0]} {ports[1]}"
        submit(server, task("served", run))
        until("the job to run", lambda: status(server) == "running")
        report("live", stream_mb_s=speeds(server, ports[0]), line_s=delays(server, ports[1]))


def status(server: Server) -> str:
    return str(server.call("/api/project/main/runs/get", {"run_name": "served"})["status"])


def opened(server: Server, target: str) -> Stream:
    return Stream(server.url, server.token, "served", target)


def speeds(server: Server, port: int) -> list[float]:
    with listening(server, port) as stream:
        found = []
        for _ in range(RUNS + 1):
            begun, left = time.perf_counter(), 50 * MB
            stream.send(b"g")
            while left:
                left -= len(stream.receive())
            found.append(50 / (time.perf_counter() - begun))
        return found[1:]


def delays(server: Server, port: int) -> list[float]:
    """Seconds from a job's print to its arrival at a client that follows the log, a line at a time."""
    with opened(server, "logs") as log, listening(server, port) as job_input:
        found, received = [], b""
        while b"up" not in received:
            received += log.receive()
        for _ in range(LINES):
            time.sleep(0.11)  # or the notice of the line before would hold this one up
            received = b""
            job_input.send(b"l")
            while not received.endswith(b"\n"):
                received += log.receive()
            found.append(time.time() - float(received.split()[-1]))
        return found


def listening(server: Server, port: int) -> Stream:
    """A stream to the port, once the job listens there."""

    def accepted() -> Stream | None:
        stream = opened(server, f"port:{port}")
        stream.sock.settimeout(0.2)
        try:
            stream.receive()
        except TimeoutError:
            stream.sock.settimeout(60)
            return stream
        return None

    found: Stream = until("the job to listen", accepted)
    return found


if __name__ == "__main__":
    main()

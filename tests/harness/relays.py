"""A service on a machine of the simulated cloud, whose network isn't the server's as far as that knows; clients of its
socket; and a tunnel that can be cut."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.measure import running_server, submit, task
from tests.harness.server import Server, until

FLAGS = ("--fake-cloud", "--no-local-fleet")
FLEET = {"type": "fleet", "name": "machines", "nodes": 1, "idle_duration": "off"}
REQUEST = b"GET / HTTP/1.1\r\nHost: replica\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
# Answers every request on a connection that stays open, as fast as Python can.
APP = f"""
import asyncio, os
class Http(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.had = transport, b""
    def data_received(self, data):
        self.had += data
        while b"\\r\\n\\r\\n" in self.had:
            _, _, self.had = self.had.partition(b"\\r\\n\\r\\n")
            self.transport.write({ANSWER!r})
async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Http, "127.0.0.1", int(os.environ["DSTACK_SERVICE_PORT"]), backlog=1024)
    await server.serve_forever()
asyncio.run(main())
"""


def service(name: str) -> dict[str, Any]:
    program = base64.b64encode(APP.encode()).decode()
    run = f"exec /usr/bin/python3 -c 'import base64; exec(base64.b64decode(\"{program}\"))'"
    return task(name, run, type="service", port=18_000, auth=False)


@contextmanager
def served(name: str = "far") -> Iterator[tuple[Server, str, int]]:
    """A server, the socket of the service's one replica, and the port where that really listens."""
    with running_server(*FLAGS) as server:
        spec = {"configuration": FLEET, "profile": {}}
        plan = {"spec": spec, "current_resource": None}
        server.call("/api/project/main/fleets/apply", {"plan": plan, "force": False})
        submit(server, service(name))
        until("the service to answer", lambda: answers(server, name))
        run = server.call("/api/project/main/runs/get", {"run_name": name})
        job_id = run["latest_job_submission"]["id"]
        socket = server.data / "relays" / hashlib.sha256(job_id.encode()).hexdigest()[:16]
        yield server, str(socket), 18_000


def answers(server: Server, name: str) -> bool:
    async def request() -> bool:
        host, _, port = server.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /proxy/services/main/{name}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        response = await reader.read()
        writer.close()
        return response.startswith(b"HTTP/1.1 200") and response.endswith(b"ok")

    return asyncio.run(request())


# --- clients ----------------------------------------------------------------------------------------------------------


class Client:
    """One connection, on which one request follows the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @staticmethod
    async def to(place: str | int) -> Client:
        """A port of this machine, or a socket's path."""
        if isinstance(place, int):
            return Client(*await asyncio.open_connection("127.0.0.1", place))
        return Client(*await asyncio.open_unix_connection(place))

    async def ask(self) -> float:
        """The seconds until the answer was here. Raises OSError or EOFError."""
        begun = time.perf_counter()
        self._writer.write(REQUEST)
        response = await self._reader.readexactly(len(ANSWER))
        assert response == ANSWER, response
        return time.perf_counter() - begun

    def close(self) -> None:
        self._writer.close()


async def one_by_one(place: str | int, count: int) -> list[float]:
    client = await Client.to(place)
    found = [await client.ask() for _ in range(count + 50)][50:]
    client.close()
    return found


async def rate(place: str | int, clients: int, seconds: float) -> float:
    """Requests a second of so many connections, each with one under way."""
    begun = time.perf_counter()
    end, count = begun + seconds, 0

    async def send_requests() -> None:
        nonlocal count
        client = await Client.to(place)
        while time.perf_counter() < end:
            await client.ask()
            count += 1
        client.close()

    await asyncio.gather(*(send_requests() for _ in range(clients)))
    return count / (time.perf_counter() - begun)


async def burst(place: str | int, count: int) -> tuple[int, float]:
    """How many of so many new connections at once got an answer, and the seconds until the last had."""
    begun = time.perf_counter()

    async def send_requests() -> bool:
        try:
            client = await Client.to(place)
            await client.ask()
        except (OSError, asyncio.IncompleteReadError):
            return False
        clients.append(client)
        return True

    clients: list[Client] = []
    found = await asyncio.gather(*(send_requests() for _ in range(count)))
    taken = time.perf_counter() - begun
    for client in clients:
        client.close()
    return sum(found), taken


# --- a tunnel that can be cut -----------------------------------------------------------------------------------------


MANY = 300


class Tunnel:
    """Passes the bytes of an agent's connections on to its server, until it is cut. On the event loop."""

    def __init__(self, server: Server) -> None:
        host, _, port = server.url.removeprefix("http://").partition(":")
        self._to = (host, int(port))
        (credential,) = Path(server.data / "fake-cloud").rglob("credential")
        self._address, self._straight = credential.parent / "server", server.url
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[Any]] = set()
        self.bytes = 0

    async def __aenter__(self) -> Tunnel:
        """From now on the agent goes this way."""
        self._listener = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self._address.write_text(f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}\n")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._address.write_text(self._straight + "\n")
        self._listener.close()
        while self._passing:
            self.cut()
            await asyncio.wait(self._passing)

    def cut(self) -> None:
        """Every connection, both ways, at once."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def used_by(self, path: str) -> list[Client]:
        """Connections of the socket; the last of them goes through here. The others hold streams of before."""
        clients: list[Client] = []
        while True:
            clients.append(await Client.to(path))
            before = self.bytes
            for _ in range(MANY):  # more than the agent's own calls in this time
                await clients[-1].ask()
            if self.bytes - before >= MANY * (len(REQUEST) + len(ANSWER)):
                return clients

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "the server makes one"
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        far_reader, far_writer = await asyncio.open_connection(*self._to)
        await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(65_536):
                self.bytes += len(data)
                writer.write(data)
                await writer.drain()
        except OSError:  # it was cut
            writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.close()


async def back_after_a_cut(tunnel: Tunnel, path: str) -> float:
    """Seconds from the cut until a new connection has its answer."""
    clients = await tunnel.used_by(path)
    tunnel.cut()
    begun = time.perf_counter()
    while True:
        try:
            await (await Client.to(path)).ask()
            break
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.01)
    taken = time.perf_counter() - begun
    try:
        await clients[-1].ask()
    except (OSError, asyncio.IncompleteReadError):
        return taken
    raise AssertionError("the connection was cut and goes on")

"""The order of work on a request: nothing is read, parsed or executed before it is due, and nobody waits behind others'
work. Clients and threads here do what the test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from chalicelib.api.dispatch import Reply, Request, RequestHead
from chalicelib.api.route import Settling
from chalicelib.api.v1 import changes_in
from chalicelib.runtime import health
from chalicelib.runtime.asgi import DRAINED, GRAIN, SMALL, AsgiBridge, Polls, together
from chalicelib.runtime.event_stream import EventStreams
from chalicelib.runtime.lanes import Lane
from chalicelib.usecases.agents.gateway_sync import GATEWAYS
from tests.harness.server import PATIENCE
from tests.world.embedded import FakeWire, Inline

MB = 2**20
LIMIT = 8 * MB
CHANGES_PATH = "/api/v1/changes"
RUNS, SYNC, INFO = "/api/runs/list", "/agent/sync", "/api/server/get_info"
GATEWAY_PATH = "/agent/gateway"
TOKEN = {"authorization": "Bearer good"}
DENIED = Reply(403, {"content-type": "application/json"}, b'{"detail":{"msg":"Invalid token","code":null}}')


class Busy(Executor):
    """A pool whose threads are all held, for ever."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        return Future()


@dataclass
class Client(FakeWire):
    """Sends its body in pieces, as it is asked for them, and notes what happens in which order."""

    body: bytes = b""
    piece: int = 64 * 1024
    endless: bool = False
    steps: list[str] = field(default_factory=list)  # read, answered
    sent: int = 0
    names: list[bytes] = field(default_factory=list)  # of the response's headers

    async def receive(self) -> dict[str, Any]:
        self.steps.append("read")
        part = self.body[self.sent : self.sent + self.piece]
        self.sent += len(part)
        if not part and self.endless:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": part, "more_body": self.sent < len(self.body) or self.endless}

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        self.steps.append("answered")
        self.names = [name for name, _ in headers]
        super().begin(status, headers, goes_on=goes_on)


@dataclass
class FakeApp:
    users: Executor = field(default_factory=Inline)
    agents: Executor = field(default_factory=Inline)
    memory: int = 4 * LIMIT
    patience: float = 0.0
    calls: list[tuple[str, int]] = field(default_factory=list)  # of the gate
    served: list[Request] = field(default_factory=list)
    parsed_by: list[int] = field(default_factory=list)
    status: int = 200
    answer: str = "{}"
    news: bool = True

    def serve(self, head: RequestHead) -> Reply:
        self.served.append(head.request)
        return Reply(self.status, {"content-type": "application/json"}, self.answer.encode())

    def refusal(self, head: RequestHead, size: int) -> Reply | None:
        self.calls.append((head.route.path, size))
        return None if head.request.headers.get("authorization") == TOKEN["authorization"] else DENIED

    def has_news(self, answer: Mapping[str, Any]) -> bool:
        self.parsed_by.append(threading.get_ident())
        return self.news

    def bridge(self) -> AsgiBridge:
        return self.bridge_and_polls()[0]

    def bridge_and_polls(self) -> tuple[AsgiBridge, Polls]:
        users, agents = (
            Lane(threads, 2, body=LIMIT, memory=self.memory, patience=self.patience)
            for threads in (self.users, self.agents)
        )
        polls = Polls()
        return AsgiBridge(self.serve, self.refusal, users, agents, polls, has_news=self.has_news, linger=0.01), polls

    def ask(
        self,
        path: str,
        client: Client | None = None,
        headers: Mapping[str, str] = TOKEN,
        *,
        method: str = "POST",
        size: int | None = None,
    ) -> Client:
        receiver = client or Client()
        asyncio.run(one(self.bridge(), path, receiver, headers, method=method, size=size))
        return receiver


async def one(
    bridge: AsgiBridge,
    path: str,
    client: Client,
    headers: Mapping[str, str] = TOKEN,
    *,
    method: str = "POST",
    size: int | None = None,
    query: bytes = b"",
) -> None:
    length = {"content-length": str(len(client.body) if size is None else size)}
    sent = [(name.encode(), value.encode()) for name, value in {**length, **headers}.items()]
    request = {"type": "http", "method": method, "path": path, "query_string": query, "headers": sent}
    scope = {**request, "state": {"connection": client}}
    await bridge(scope, client.receive, client.send)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer forged"}], ids=["no token", "a forged one"])
@pytest.mark.parametrize("path", [RUNS, SYNC])
def test_without_a_token_that_is_good_a_body_isnt_read(path: str, headers: dict[str, str]) -> None:
    fake = FakeApp()
    client = fake.ask(path, Client(b"x" * 5 * MB), headers)
    assert client.status == 403 and fake.served == []
    assert client.steps[0] == "answered"
    assert client.sent <= DRAINED + client.piece  # a little, so that the client gets to its answer
    assert client.headers[b"connection"] == b"close"
    assert fake.calls == [(path, 5 * MB)]


def test_without_a_token_not_even_a_thread_is_asked() -> None:
    assert FakeApp(users=Busy(), agents=Busy()).ask(RUNS, Client(b"{}"), {}).status == 403


def test_with_a_token_the_whole_body_reaches_the_handler() -> None:
    fake = FakeApp()
    client = fake.ask(RUNS, Client(b"x" * 5 * MB))
    assert client.status == 200 and len(fake.served[0].body) == 5 * MB
    assert fake.calls == [(RUNS, 5 * MB)] and b"connection" not in client.headers


def test_a_small_body_is_read_at_once_and_its_token_checked_when_it_is_served() -> None:
    fake = FakeApp()
    assert fake.ask(RUNS, Client(b"x" * SMALL)).status == 200
    assert fake.calls == [] and len(fake.served) == 1


def test_what_is_too_large_is_refused_by_its_announced_size() -> None:
    fake = FakeApp()
    client = fake.ask(RUNS, Client(b"x" * (9 * MB)))
    assert client.status == 400 and "larger than 8 MB" in orjson.loads(client.answer)["detail"][0]["msg"]
    assert client.steps[0] == "answered" and client.sent == 9 * MB  # all is taken, of a client that is known
    assert fake.served == []


def test_chunks_are_counted_as_they_come() -> None:
    fake = FakeApp()
    client = fake.ask(RUNS, Client(b"x" * (9 * MB)), {**TOKEN, "transfer-encoding": "chunked"})
    assert client.status == 400 and fake.served == []


@pytest.mark.parametrize(("path", "status"), [("/api/nothing", 404), ("/api/users", 404), (SYNC, 405)])
def test_a_path_or_a_method_that_isnt_there_needs_no_thread_and_no_body(path: str, status: int) -> None:
    fake = FakeApp(users=Busy(), agents=Busy())
    client = fake.ask(path, Client(b"x" * 5 * MB), method="PUT")
    assert client.status == status and client.steps[0] == "answered" and fake.calls == []


def test_a_public_route_takes_a_small_body_only() -> None:
    fake = FakeApp()
    assert fake.ask(INFO, Client(b"{}"), {}).status == 200
    client = fake.ask(INFO, Client(b"x" * MB), {})
    assert client.status == 400 and len(fake.served) == 1


@pytest.mark.parametrize("path", [RUNS, "/api/v1/projects/main/runs"])
def test_bodies_over_the_memory_are_turned_away_for_a_moment(path: str) -> None:
    async def story() -> None:
        fake = FakeApp(memory=3 * MB)
        bridge = fake.bridge()
        slow, other = Client(b"x" * MB, endless=True), Client(b"x" * MB)
        sending = asyncio.create_task(one(bridge, path, slow, size=2 * MB))
        while slow.sent < MB:
            await asyncio.sleep(0)
        await one(bridge, path, other)
        assert (other.status, other.headers[b"retry-after"]) == (503, b"2")
        assert other.names.count(b"retry-after") == 1
        assert b"busy" in other.answer and fake.served == []
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await one(bridge, path, third := Client(b"x" * MB))
        assert third.status == 200  # what was held is free again

    asyncio.run(story())


def test_answers_count_too() -> None:
    fake = FakeApp(memory=2 * MB, answer="x" * 2 * MB)
    assert fake.ask(RUNS).status == 200  # one alone

    async def story() -> None:
        bridge = fake.bridge()
        stuck = Client()

        async def never(part: bytes, *, last: bool) -> None:
            await asyncio.Event().wait()

        stuck.part = never  # type: ignore[method-assign]  # it doesn't read
        held = asyncio.create_task(one(bridge, RUNS, stuck))
        for _ in range(20):
            await asyncio.sleep(0)
        await one(bridge, RUNS, client := Client())
        assert client.status == 503
        held.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("status", [204, 304])
def test_a_response_without_a_body_says_nothing_of_one(status: int) -> None:
    client = FakeApp(status=status, answer="").ask(RUNS)
    assert (client.status, client.answer) == (status, b"") and b"content-length" not in client.headers


def test_bodies_and_answers_are_parsed_on_threads() -> None:
    fake = FakeApp(agents=ThreadPoolExecutor(1), answer='{"news": true}')
    body = orjson.dumps({"instance": "i", "wait": 5, "tasks": ["x" * 1000] * 1000})
    assert fake.ask(SYNC, Client(body)).status == 200
    assert fake.parsed_by and threading.get_ident() not in fake.parsed_by


def test_agents_are_answered_while_users_hold_every_thread() -> None:
    async def story() -> None:
        fake = FakeApp(users=Busy(), answer='{"news": true}')
        bridge = fake.bridge()
        held = [asyncio.create_task(one(bridge, RUNS, Client(b"{}"))) for _ in range(50)]
        await one(bridge, SYNC, client := Client(b'{"instance": "i", "wait": 5}'))
        assert client.status == 200
        for task in held:
            task.cancel()

    asyncio.run(story())


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_gateway_waits_for_news_and_holds_no_thread_meanwhile() -> None:
    async def story() -> None:
        fake = FakeApp(answer='{"news": false}', news=False)
        bridge, polls = fake.bridge_and_polls()
        polls.bind()
        clients = [Client() for _ in range(3)]
        waiting = [
            asyncio.create_task(one(bridge, GATEWAY_PATH, each, method="GET", query=b"since=1&wait=25"))
            for each in clients
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(fake.served), {each.status for each in clients}) == (3, {0})
        fake.answer, fake.news = '{"news": true}', True
        polls.ring([GATEWAYS])
        await asyncio.gather(*waiting)
        assert [each.answer for each in clients] == [b'{"news": true}'] * 3
        fake.news = False
        await one(bridge, GATEWAY_PATH, once := Client(), method="GET", query=b"since=1&wait=x")
        assert once.status == 200  # who doesn't say how long doesn't wait

    asyncio.run(story())


# --- health -----------------------------------------------------------------------------------------------------------


def test_the_health_check_needs_no_thread() -> None:
    client = FakeApp(users=Busy(), agents=Busy()).ask(health.PATH, headers={}, method="GET")
    assert client.status == 200 and orjson.loads(client.answer)["status"] == "running"


def test_a_health_check_shows_what_the_last_reading_of_the_store_did() -> None:
    async def story() -> None:
        fake = FakeApp(status=500, answer='{"detail": "the store fails"}')
        bridge = fake.bridge()
        await one(bridge, health.PATH, first := Client(), {}, method="GET")
        for _ in range(20):
            await asyncio.sleep(0)
        await one(bridge, health.PATH, second := Client(), {}, method="GET")
        assert (first.status, second.status) == (200, 500)
        assert len(fake.served) == 1  # a reading counts for a few seconds

    asyncio.run(story())


def test_a_store_that_doesnt_answer_is_ill() -> None:
    class DelayedLoop(asyncio.SelectorEventLoop):
        ahead = 0.0

        def time(self) -> float:
            return super().time() + self.ahead

    loop = DelayedLoop()

    async def story() -> None:
        bridge = FakeApp(agents=Busy()).bridge()
        statuses = []
        for _ in range(3):
            await one(bridge, health.PATH, client := Client(), {}, method="GET")
            statuses.append(client.status)
            loop.ahead += 20
        assert statuses == [200, 200, 500] and b"hasn't answered for 40 s" in client.answer

    loop.run_until_complete(story())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_long_polls_end_together_and_never_late() -> None:
    ends = {together(100.0 + number / 100 + 25.0, 25.0) for number in range(100)}
    assert ends == {125.0, 125.0 + GRAIN}
    assert together(100.3, 0.3) == 100.3, "a short one would lose all of its time"


# --- resources that settle --------------------------------------------------------------------------------------------

RESOURCES = "/api/v1/projects/main/runs"
SETTLING = Settling("run/1", f"{RESOURCES}/one")


@dataclass
class SettlingApp(FakeApp):
    """A run that is settled once it was read so often. `meanwhile`: what happens after a read that isn't the last."""

    reads: int = 2
    meanwhile: Callable[[], None] = lambda: None

    def serve(self, head: RequestHead) -> Reply:
        self.served.append(head.request)
        if head.request.method == "POST":
            return Reply(201, {"Content-Type": "application/json", "Location": SETTLING.path}, b"0", SETTLING)
        reads = len([request for request in self.served if request.method == "GET"])
        if reads < self.reads:
            self.meanwhile()
        return Reply(
            200, {"Content-Type": "application/json"}, str(reads).encode(), SETTLING if reads < self.reads else None
        )


def answered(app: SettlingApp, method: str, path: str, happens: Callable[[Polls], None], prefer: str) -> Client:
    async def asked() -> Client:
        bridge, polls = app.bridge_and_polls()
        polls.bind()
        app.meanwhile = lambda: happens(polls)
        client = Client()
        await one(bridge, path, client, {**TOKEN, "prefer": prefer, "idempotency-key": "k"}, method=method)
        return client

    return asyncio.run(asked())


def test_a_write_is_answered_when_its_resource_is_settled() -> None:
    app = SettlingApp()
    client = answered(app, "POST", RESOURCES, lambda polls: polls.changed(["run/2", "run/1"]), "wait=60")
    assert (client.status, client.answer, client.headers[b"location"]) == (201, b"2", SETTLING.path.encode())
    assert client.headers[b"preference-applied"] == b"wait=60"
    assert [(sent.method, sent.path) for sent in app.served] == [
        ("POST", RESOURCES), ("GET", SETTLING.path), ("GET", SETTLING.path),
    ]  # fmt: skip
    assert all("idempotency-key" not in sent.headers for sent in app.served[1:])


def test_who_doesnt_wait_is_answered_at_once() -> None:
    app = SettlingApp()
    client = answered(app, "POST", RESOURCES, lambda polls: None, "respond-async")
    assert (client.answer, b"preference-applied" in client.headers, len(app.served)) == (b"0", False, 1)


def test_a_server_that_ends_answers_with_what_there_is() -> None:
    client = answered(SettlingApp(reads=9), "GET", SETTLING.path, lambda polls: polls.close(), "wait=60")
    assert (client.status, client.headers[b"preference-applied"]) == (200, b"wait=60")


@dataclass
class Page(Client):
    """Stays until it is told to leave, and notes what it is sent."""

    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def receive(self) -> dict[str, Any]:
        if self.sent:
            await self.left.wait()
            return {"type": "http.disconnect"}
        self.sent = 1
        return {"type": "http.request", "body": b"", "more_body": False}


@dataclass
class Feed(FakeApp):
    """The feed of changes: the cursor counts the questions. `project`: that of the caller."""

    project: str = "mine"

    def serve(self, head: RequestHead) -> Reply:
        self.served.append(head.request)
        body = orjson.dumps({"cursor": str(len(self.served)), "more": False})
        return Reply(200, {"content-type": "application/json"}, body, heard=(changes_in(self.project),))


async def questions(app: Feed, count: int) -> None:
    while len(app.served) < count:
        await asyncio.sleep(0)


def test_a_commit_in_another_project_asks_nothing_for_a_stream() -> None:
    async def followed() -> tuple[int, int, int]:
        app, page = Feed(), Page()
        bridge, polls = app.bridge_and_polls()
        bridge._followers = EventStreams(0.0, 0.0)
        polls.bind()
        stream = asyncio.create_task(
            one(bridge, CHANGES_PATH, page, {**TOKEN, "accept": "text/event-stream"}, method="GET")
        )
        await questions(app, 2)
        polls.changed([changes_in("theirs")])
        quiet = len(app.served)
        app.project = "other"  # which the caller may see now, and not the first one any more
        polls.ring_all()
        await questions(app, 3)
        await questions(app, 4)  # something in the new one may have changed already
        polls.changed([changes_in("mine")])
        moved = len(app.served)
        polls.changed([changes_in("other")])
        await questions(app, 5)
        page.left.set()
        await stream
        return quiet, moved, len(polls._events)

    assert asyncio.run(asyncio.wait_for(followed(), PATIENCE)) == (2, 4, 0)

"""`/healthz` and `/readyz` of the embedded server: what isn't ready, and why."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import orjson

from chalicelib.api.dispatch import Reply
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.errors import StorageFull
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.probes import FRESH, LEAST_FREE, Check, Probes, disk_problem
from chalicelib.runtime.reconcile_loop import LONG_PASS, ReconcileLoop
from chalicelib.runtime.settings import ServerSettings
from tests.runtime.test_asgi import Client, FakeApp, one
from tests.world.embedded import Inline
from tests.world.time import Clock

LONG = 60.0  # seconds that a test waits for what must come


def asked(checks: Mapping[str, Check], times: int = 1, path: str = "/readyz", **more: Any) -> Reply:
    async def ask() -> Reply:
        probes = Probes(checks, thread=more.pop("thread", None) or Inline(), **more)
        for _ in range(times):
            reply = await probes.reply("GET", path)
        assert reply is not None
        return reply

    return asyncio.run(ask())


def why(reply: Reply) -> dict[str, str]:
    return {check["name"]: check["why"] for check in orjson.loads(reply.body)["checks"]}


def failing(error: Exception) -> Check:
    def check() -> str:
        raise error

    return check


def test_a_server_is_ready_if_every_part_is() -> None:
    reply = asked({"store": lambda: "", "disk": lambda: ""})
    assert reply.status == 200 and orjson.loads(reply.body) == {
        "ready": True,
        "checks": [{"name": "store", "ready": True, "why": ""}, {"name": "disk", "ready": True, "why": ""}],
    }


def test_one_part_that_isnt_makes_it_unready_and_says_why() -> None:
    reply = asked({"store": failing(StorageFull("plane.db can't be written.")), "disk": lambda: "It is full."})
    assert reply.status == 503 and not orjson.loads(reply.body)["ready"]
    assert why(reply) == {"store": "plane.db can't be written.", "disk": "It is full."}


def test_a_failure_of_a_check_is_logged_and_its_text_kept_from_strangers(caplog: Any) -> None:
    reply = asked({"store": failing(ValueError("secret"))})
    assert why(reply) == {"store": "It failed with ValueError; the server's log has the cause."}
    assert "secret" in caplog.text


class Never(Executor):
    """A thread whose work doesn't end."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        return Future()


def test_a_check_that_hangs_is_named_and_not_started_again() -> None:
    now = iter([10.0, 12.0, 45.0])
    reply = asked({"store": lambda: ""}, times=2, thread=Never(), clock=lambda: next(now), patience=0.0)
    assert (reply.status, why(reply)) == (503, {"store": "It hasn't answered for 35 s."})


def test_a_check_that_hangs_doesnt_keep_the_process_from_ending() -> None:
    kept: list[bool] = []
    begun, gate = threading.Event(), threading.Event()

    def hanging() -> str:
        kept.append(not threading.current_thread().daemon)
        begun.set()
        gate.wait(LONG)
        return ""

    async def ask() -> Reply | None:
        return await Probes({"store": hanging}, patience=0.0).reply("GET", "/readyz")

    try:
        reply = asyncio.run(ask())
        assert begun.wait(LONG)
    finally:
        gate.set()
    assert reply is not None and reply.status == 503 and "hasn't answered" in why(reply)["store"]
    assert kept == [False]


def test_many_requests_in_a_second_are_one_check() -> None:
    checked: list[int] = []
    now = [0.0]

    def check() -> str:
        checked.append(1)
        return ""

    asked({"store": check}, times=50, clock=lambda: now[0])
    assert len(checked) == 1

    def later() -> float:
        now[0] += FRESH
        return now[0]

    asked({"store": check}, times=3, clock=later)
    assert len(checked) == 4


def test_it_is_alive_whatever_its_parts_do() -> None:
    reply = asked({"store": failing(ValueError())}, path="/healthz")
    assert (reply.status, reply.body) == (200, b'{"alive":true}')


def test_other_methods_are_refused_and_other_paths_left_to_the_api() -> None:
    async def ask() -> tuple[Reply | None, Reply | None]:
        probes = Probes({}, thread=Inline())
        return await probes.reply("POST", "/readyz"), await probes.reply("GET", "/readyz/x")

    refused, other = asyncio.run(ask())
    assert refused is not None and refused.status == 405 and other is None


def test_without_a_token_a_request_gets_its_answer_from_the_bridge() -> None:
    async def ask() -> tuple[Client, Client, list[Any]]:
        fake, ready, head = FakeApp(), Client(), Client()
        bridge = fake.bridge()
        bridge._probes = Probes({"disk": lambda: "It is full."}, thread=Inline())
        await one(bridge, "/readyz/", ready, {}, method="GET")
        await one(bridge, "/readyz", head, {}, method="HEAD")
        return ready, head, fake.served

    ready, head, served = asyncio.run(ask())
    assert ready.status == head.status == 503 and not served
    assert b"It is full." in ready.answer and not head.answer


def test_little_room_on_the_disk_is_a_reason() -> None:
    assert disk_problem(Path("/data"), lambda folder: LEAST_FREE) == ""
    assert disk_problem(Path("/data"), lambda folder: 2**20) == (
        "The data folder's disk has 1 MB left; the server needs 64."
    )


class Passes:
    """Passes that do what the test says, one after the other."""

    def __init__(self, loop: ReconcileLoop, *steps: Callable[[], None]) -> None:
        self.loop, self.steps, self.seen, self.over = loop, list(steps), [], threading.Event()
        self.seen: list[str]

    def run(self, units: Iterable[str]) -> None:
        self.seen.append(self.loop.problem())
        if not self.steps:
            self.over.set()
            return
        self.loop.wake(["run/1"])
        self.steps.pop(0)()


def test_a_reconciler_says_why_it_decides_nothing() -> None:
    def full() -> None:
        raise StorageFull("plane.db can't be written.")

    clock = Clock()
    loop = ReconcileLoop(clock, lambda: None, pause=0.0, full_disk=0.0)
    passes = Passes(loop, full, lambda: clock.pass_(LONG_PASS))
    assert loop.problem() == "It isn't running."
    loop.wake(["run/1"])
    loop.start(passes)
    assert passes.over.wait(LONG)
    assert passes.seen[:2] == ["", "Nothing can be decided: plane.db can't be written."]
    loop.stop()
    assert loop.problem() == "It isn't running."


def test_a_pass_that_lasts_for_a_minute_is_a_reason() -> None:
    clock, seen = Clock(), []

    class Long:
        def run(self, units: Iterable[str]) -> None:
            clock.pass_(LONG_PASS)
            seen.append(loop.problem())
            over.set()

    loop, over = ReconcileLoop(clock, lambda: None, pause=0.0), threading.Event()
    loop.wake(["run/1"])
    loop.start(Long())
    assert over.wait(LONG)
    loop.stop()
    assert seen[0] == "Its pass has been running for 60 s."


def test_a_server_that_stops_says_so(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=tmp_path, local_fleet=False)
    root = EmbeddedRoot(settings, ServerConfig(projects=[]), "http://127.0.0.1:1")
    try:
        checks = root.checks()
        assert {name: check() for name, check in checks.items()} == {
            "server": "",
            "store": "",
            "disk": "",
            "reconciler": "It isn't running.",
        }
        root.polls.close()
        assert checks["server"]() == "The server is stopping."
    finally:
        root.close()

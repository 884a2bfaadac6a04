"""Replicas that a gateway reaches over streams only, which their agents dial: the real nginx, its control program and
the agent's own code."""

from __future__ import annotations

import hashlib
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.gateway.nginx import pin_of
from chalicelib.agent.gateway.relays import AT_FIRST, FRESH
from chalicelib.agent.streams import websocket
from chalicelib.agent.streams.streams import AgentStreams, dial_websocket
from chalicelib.contract.agent import StreamOrder
from chalicelib.domain.serving import Served
from tests.harness.server import until
from tests.serving.caller import Answer, Caller
from tests.serving.contract_live import stepwise
from tests.serving.door import Replica, service
from tests.serving.gateway_plane import FakePlane, Program
from tests.serving.nginx_door import DOMAIN, installed

HOST = f"app.{DOMAIN}"


class Agent:
    """The streams of an agent on whose machine the replica is."""

    def __init__(self, replica: Replica, plane: FakePlane, program: Program) -> None:
        self._plane, self.gateway = plane, program.secure
        self.messages: list[str] = []
        self.orders: list[StreamOrder] = []
        self.dialled: list[StreamOrder] = []
        self.streams = AgentStreams(lambda: "http://127.0.0.1:1", self.messages.append)  # the server is no use here
        self.streams.serve("port", lambda task, order: socket.create_connection(("127.0.0.1", replica.port)))
        plane.ordered = self.take
        self._thawed = threading.Event()

    def freeze(self) -> None:
        """It answers nothing any more, as if its host had no network: nobody hears that it is gone."""
        frozen = threading.Event()
        self.streams.loop.call(lambda: (frozen.set(), self._thawed.wait()))
        assert frozen.wait(120)

    def thaw(self) -> None:
        self._thawed.set()

    def take(self, order: dict[str, Any]) -> None:
        self.orders.append(order)
        self.dialled.append({**order, "gateway": self.gateway, "pin": self._plane.pin})
        self.streams.dial(self.dialled[-1])


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.stop()


@pytest.fixture
def plane() -> Iterator[FakePlane]:
    made = FakePlane()
    yield made
    made.close()


@pytest.fixture
def program(plane: FakePlane) -> Iterator[Program]:
    installed()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Program(Path(folder), f"http://127.0.0.1:{plane.port}", "www-data", tls=True)
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def agent(replica: Replica, plane: FakePlane, program: Program) -> Iterator[Agent]:
    made = Agent(replica, plane, program)
    yield made
    made.streams.loop.close()


@pytest.fixture
def served(plane: FakePlane, agent: Agent, replica: Replica, program: Program) -> Served:
    """A service whose only replica has no address."""
    made = service((replica.served(address=""),))
    plane.say(made)
    until("the service", lambda: ask(program, "/echo").status == 200, every=0.2)
    return made


def ask(program: Program, target: str, method: str = "GET", body: bytes = b"") -> Answer:
    try:
        with Caller(("127.0.0.1", program.port)) as caller:
            caller.head(method, target, HOST, [("Content-Length", str(len(body)))] if body else ())
            caller.send(body)
            return caller.answer(method)
    except OSError:
        return Answer(0, [], b"")


def test_requests_and_bodies_pass(served: Served, program: Program, replica: Replica) -> None:
    body = bytes(range(256)) * 20_000
    answer = ask(program, "/echo?x=1", "POST", body)
    assert (answer.status, answer.json()["sha256"]) == (200, hashlib.sha256(body).hexdigest())
    assert answer.header("x-replica") == replica.id
    assert len(ask(program, "/bytes?n=5000000").body) == 5_000_000


def test_many_at_once_each_have_a_stream(served: Served, program: Program, agent: Agent) -> None:
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: ask(program, "/delay?s=0.5").status, range(48)))
    assert answers == [200] * 48
    assert {order["target"] for order in agent.orders} == {f"port:{agent.orders[0]['target'][5:]}"}


def test_events_come_as_they_leave(served: Served, program: Program, replica: Replica) -> None:
    with Caller(("127.0.0.1", program.port)) as caller:
        caller.head("GET", "/stream?n=20&pace=events", HOST)
        found = stepwise(caller.begin(), replica, "events")
    assert len(found) == 21 and found[-1] == "[DONE]"


def test_a_ticket_is_good_for_once_and_for_its_stream(
    served: Served, program: Program, agent: Agent, plane: FakePlane
) -> None:
    first, second = until("two streams", lambda: len(agent.streams.loop.streams) > 1 and agent.orders[:2])
    for stream, ticket in ((first["id"], first["ticket"]), (second["id"], first["ticket"]), ("x", "")):
        with pytest.raises(ConnectionError, match="403"):
            dial_websocket(agent.gateway, "/agent/streams/" + stream, ticket, pin=plane.pin)
    assert ask(program, "/echo").status == 200


def test_agents_come_over_https_only_and_know_the_gateway_by_its_pin(
    served: Served, program: Program, agent: Agent, plane: FakePlane
) -> None:
    with pytest.raises(ConnectionError, match=r"403.*Streams of agents come over https only"):
        dial_websocket(f"http://127.0.0.1:{program.port}", "/agent/streams/x", "ticket")
    wrong = "0" * 64
    with pytest.raises(ConnectionError, match=f"fingerprint {plane.pin}, not {wrong} as expected"):
        dial_websocket(agent.gateway, "/agent/streams/x", "ticket", pin=wrong)
    nobody = program.folder / "nobody.pem"
    assert (nobody.stat().st_mode & 0o777, pin_of(nobody.read_text())) == (0o600, plane.pin)
    assert sorted(each.name for each in program.folder.glob("nobody*")) == ["nobody.pem"]


def test_agents_hear_of_a_certificate_that_was_made_anew(
    served: Served, program: Program, agent: Agent, plane: FakePlane
) -> None:
    before, pid = plane.pin, program.nginx()
    program.kill()
    (program.folder / "nobody.pem").write_text("lost")
    program.start()
    until("another pin", lambda: plane.pin != before)
    until("a new nginx, as only that shows it", lambda: program.nginx() not in (0, pid))
    until("orders with it", lambda: {order["pin"] for order in agent.dialled[-2:]} == {plane.pin})
    until("the service", lambda: ask(program, "/echo").status == 200, every=0.2)


def test_one_in_its_network_is_reached_by_itself_and_over_streams_when_that_fails(
    plane: FakePlane, agent: Agent, program: Program, replica: Replica
) -> None:
    """Its streams fail here, so that a good answer shows that it came without them, and the other way round."""
    agent.streams.serve("port", unreached)
    plane.say(service((replica.served(address="", nearby="127.0.0.1"),)))
    until("the service", lambda: ask(program, "/echo").status == 200, every=0.2)
    assert [ask(program, "/echo").status for _ in range(20)] == [200] * 20
    agent.streams.serve("port", lambda task, order: socket.create_connection(("127.0.0.1", replica.port)))
    plane.say(service((replica.served(address="", nearby="127.0.0.2"),)))  # where it doesn't listen
    until("the service over streams", lambda: ask(program, "/echo").status == 200, every=0.2)
    assert [ask(program, "/echo").status for _ in range(20)] == [200] * 20


def unreached(task: str, order: Any) -> socket.socket:
    raise ConnectionRefusedError("no stream works here")


def test_what_isnt_a_websocket_is_refused(served: Served, program: Program) -> None:
    for head in (
        b"GET /agent/streams/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        websocket.request("/agent/streams/", "k", {}),
    ):
        with Caller(("127.0.0.1", program.port)) as caller:
            caller.send(head.replace(b"Connection:", b"Host: 127.0.0.1\r\nConnection:"))
            assert caller.answer().status == 403


def test_a_service_may_have_that_path_itself(served: Served, program: Program) -> None:
    assert ask(program, "/agent/streams/mine").json()["target"] == "/agent/streams/mine"


def test_an_agent_that_was_cut_off_is_back_soon(
    served: Served, program: Program, agent: Agent, plane: FakePlane, replica: Replica
) -> None:
    again = Agent(replica, plane, program)
    agent.streams.loop.close()
    try:
        until("the service", lambda: ask(program, "/echo").status == 200)
    finally:
        again.streams.loop.close()
    assert again.orders


def test_an_order_that_is_lost_is_given_again(
    served: Served, program: Program, agent: Agent, plane: FakePlane, replica: Replica
) -> None:
    again, lost = Agent(replica, plane, program), set[str]()

    def lose_once(order: dict[str, Any]) -> None:
        if order["id"] in lost:
            again.take(order)
        lost.add(order["id"])

    plane.ordered = lose_once
    agent.streams.loop.close()
    try:
        until("the service", lambda: ask(program, "/echo").status == 200)
    finally:
        again.streams.loop.close()
    assert again.orders


@pytest.mark.parametrize(
    ("size", "ends"),
    [
        *((size, "its agent ends") for size in (0, 1000, 3 * 2**20)),
        *((size, "its agent is frozen") for size in (0, 1000)),  # what is streamed to such a host can't be sent twice
    ],
)
def test_a_host_that_has_died_costs_no_request_while_another_stands_by(
    plane: FakePlane, program: Program, ends: str, size: int
) -> None:
    """Neither one that was on its way, nor, once it is known, one with a body that is streamed."""
    with two_hosts(plane, program) as (dead, good, replica):
        replica.kill()
        if ends == "its agent ends":
            dead.streams.loop.close()
            plane.ordered = lambda order: good.take(order) if order["instance"] == "good" else None
        else:
            dead.freeze()
            time.sleep(FRESH)  # or the silence couldn't be known from the last answer
        for _ in range(10):
            with Caller(("127.0.0.1", program.port)) as caller:
                caller.head("POST", "/echo", HOST, [("Content-Length", str(size))])
                caller.send(bytes(size))
                answer = caller.answer("POST")
            assert (answer.status, answer.json()["replica"]) == (200, "good")


def test_the_only_replica_of_a_host_that_has_died_cant_be_reached(
    served: Served, program: Program, agent: Agent, plane: FakePlane
) -> None:
    """A request waits for its agent, which may be back in a moment; then it is told what is so."""
    plane.ordered = lambda order: None
    agent.streams.loop.close()
    answer = ask(program, "/echo")
    assert (answer.status, answer.json()["detail"][0]["code"]) == (502, "bad_gateway")


@contextmanager
def two_hosts(plane: FakePlane, program: Program) -> Iterator[tuple[Agent, Agent, Replica]]:
    """A service with a replica on each, reached over streams, of which none has been used. One host will die."""
    with ExitStack() as made:
        replicas = {name: Replica(name) for name in ("dead", "good")}
        agents = {name: Agent(replica, plane, program) for name, replica in replicas.items()}
        for name, agent in agents.items():
            made.callback(replicas[name].stop)
            made.callback(agent.streams.loop.close)
            made.callback(agent.thaw)
        plane.ordered = lambda order: agents[str(order["instance"])].take(order)
        served = [replica.served(address="", instance_id=name) for name, replica in replicas.items()]
        plane.say(service(served))
        until("streams", lambda: all(len(agent.streams.loop.streams) == AT_FIRST for agent in agents.values()))
        yield agents["dead"], agents["good"], replicas["dead"]

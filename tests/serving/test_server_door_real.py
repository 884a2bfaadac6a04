"""The server's own door is held to the suite of doors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from chalicelib.domain.serving import ServedModel, ServedReplica
from chalicelib.serving.balancer import FAILURES
from chalicelib.serving.door import DoorSettings
from chalicelib.serving.websockets import WebSocketTunnel
from tests.harness.server import until
from tests.serving import contract, contract_live, contract_models, contract_replicas
from tests.serving.caller import Caller
from tests.serving.door import STRANGER, TOKEN, DoorFacts, Replica, Visitor, bearer, service
from tests.serving.embedded import EmbeddedDoor, Known, opened


class _EmbeddedFixtures:
    @pytest.fixture
    def facts(self) -> DoorFacts:
        return DoorFacts("server", paths=True, models=True, tokens=True, hints=True, off=True)

    hold: float

    @pytest.fixture
    def door(self) -> Iterator[EmbeddedDoor]:
        with opened(DoorSettings(hold=self.hold)) as door:
            yield door


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    made = Replica()
    yield made
    made.stop()


class TestPassesOn(_EmbeddedFixtures, contract.PassesOn):
    pass


class TestHeaders(_EmbeddedFixtures, contract.Headers):
    pass


class TestBodies(_EmbeddedFixtures, contract.Bodies):
    pass


class TestStreams(_EmbeddedFixtures, contract_live.Streams):
    pass


class TestStreamsOnAsynciosOwnLoop(_EmbeddedFixtures, contract_live.Streams):
    """Where there is no wheel of uvloop."""

    @pytest.fixture
    def door(self) -> Iterator[EmbeddedDoor]:
        with opened(loop="asyncio") as door:
            yield door


class TestWebSockets(_EmbeddedFixtures, contract_live.WebSockets):
    def test_a_websocket_that_is_never_read_ends(
        self, visitor: Visitor, replica: Replica, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(WebSocketTunnel, "read_seconds", 0.3)
        before = replica.seen()["left"].get("ws", 0)
        with visitor.connect() as caller:
            self.upgrade(caller, visitor)
            frame = self.frame(bytes(60_000))
            with suppress(ConnectionError):  # what comes back fills every buffer on the way
                while True:
                    caller.send(frame)
            until("the replica's end", lambda: replica.seen()["left"].get("ws", 0) > before)


class TestWhoMayCome(_EmbeddedFixtures, contract_live.WhoMayCome):
    pass


class TestTricks(_EmbeddedFixtures, contract_live.Tricks):
    pass


class TestErrors(_EmbeddedFixtures, contract_replicas.Errors):
    pass


class TestSilentHosts(_EmbeddedFixtures, contract.Doors):
    @pytest.mark.parametrize("size", [0, 3 * 2**20])
    def test_one_gets_no_request_that_another_can_have(self, replica: Replica, size: int) -> None:
        requested = list[str]()

        async def connected(of: ServedReplica, seconds: float) -> bool:
            requested.append(of.job_id)
            return False

        dead = ServedReplica(job_id="dead", instance_id="another", port=1, ready=True)
        with opened(connected=connected, socket_path=lambda of: "/nowhere") as door:
            alone, both = service([dead], name="alone"), service([dead, replica], name="both")
            door.serve(alone, both)
            headers, visitor = [("Content-Length", str(size))] if size else [], Visitor(door, both)
            for _ in range(2 * FAILURES):
                assert visitor.ask("/echo", "POST", headers, bytes(size)).status == 200
            assert set(requested) == {"dead"}
            requested.clear()
            assert Visitor(door, alone).ask("/echo").status == 502 and requested == [], "there is no other"


class TestOddAnswers(_EmbeddedFixtures, contract.Doors):
    @pytest.mark.parametrize("how", ["status", "switch", "header", "long", "else"])
    def test_what_isnt_http_is_502(
        self, visitor: Visitor, replica: Replica, capfd: pytest.CaptureFixture[str], how: str
    ) -> None:
        before = replica.seen()["came"].get("odd", 0)
        answer = visitor.ask(f"/odd?how={how}", "POST")
        assert answer.status == 502 and "didn't answer in HTTP" in answer.json()["detail"][0]["msg"]
        assert replica.seen()["came"]["odd"] == before + 1, "it was sent again"
        assert visitor.ask("/echo").status == 200
        assert capfd.readouterr().err == "", "an application fills the server's log"


class TestLimits(_EmbeddedFixtures, contract_replicas.Limits):
    pass


class TestReplicas(_EmbeddedFixtures, contract_replicas.Replicas):
    pass


class TestHolding(_EmbeddedFixtures, contract_replicas.Holding):
    pass


class TestServesModels(_EmbeddedFixtures, contract_models.ServesModels):
    pass


class TestImpatienceOfModels(_EmbeddedFixtures, contract_models.Impatience):
    pass


class TestImpatience(_EmbeddedFixtures, contract_replicas.Impatience):
    pass


class TestCounting(_EmbeddedFixtures, contract_replicas.Counting):
    pass


def test_a_service_that_is_at_a_gateway_is_said_to_be_there() -> None:
    known = Known()
    known.away["main", "chat"] = "https://chat.example.com/"
    with opened(known=known) as door, Caller(door.address) as caller:
        answers = []
        door.allow(TOKEN, "main")
        for run in ("chat", "talk"):
            caller.head("GET", f"/proxy/services/main/{run}/", "localhost", [bearer(TOKEN)])
            answers.append(caller.answer())
    assert [answer.status for answer in answers] == [404, 404]
    messages = [answer.json()["detail"][0]["msg"] for answer in answers]
    assert messages[0] == "The service chat is at https://chat.example.com/: its door is a gateway."
    assert messages[1].startswith("There is no running service talk in the project main.")


@pytest.mark.parametrize("token", ["", STRANGER, "nobody's"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
@pytest.mark.parametrize("page", [False, True])
def test_nobody_learns_names_by_trying_them(token: str, method: str, page: bool) -> None:
    headers = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "GET")] if page else []
    headers += [bearer(token)] if token else []
    known = Known()
    known.away["main", "away"] = "https://chat.example.com/"
    with opened(known=known) as door, Caller(door.address) as caller:
        door.allow(STRANGER, "other")
        door.serve(service(name="here", auth=True), service(name="model", auth=True, model=ServedModel(name="m")))
        answers = []
        for place in ("main/here", "main/model", "main/away", "main/none", "nowhere/here"):
            for target, host in (
                (f"/proxy/services/{place}/", "localhost"),
                ("/", ".".join(reversed(place.split("/"))) + ".localhost"),
            ):
                caller.head(method, target, host, headers)
                answers.append(caller.answer(method))
    assert {answer.status for answer in answers} == {204 if page and method == "OPTIONS" else 403}
    assert len({(answer.body, tuple(answer.headers)) for answer in answers}) == 1


def test_cookies_of_services_by_path_come_back_to_their_own(replica: Replica) -> None:
    with opened() as door, Caller(door.address) as caller:
        door.serve(service((replica,)))
        caller.head(
            "GET", "/proxy/services/main/app/cookies?set=a=1;Path=/x|b=2;Domain=localhost|__Host-c=3;Path=/", "h"
        )
        assert caller.answer().all("set-cookie") == ["a=1; Path=/proxy/services/main/app/x", "b=2"]


PAGE = [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]


@pytest.mark.parametrize(("strip", "there"), [(True, "/echo?a=1"), (False, "/proxy/services/main/app/echo?a=1")])
def test_a_browser_that_opens_a_page_by_path_is_sent_to_the_services_own_host(
    replica: Replica, strip: bool, there: str
) -> None:
    with opened() as door, Caller(door.address) as caller:
        door.serve(service((replica,), strip_prefix=strip))

        def status(host: str, headers: list[tuple[str, str]], target: str = "/proxy/services/main/app/echo?a=1") -> int:
            caller.head("GET", target, host, headers)
            found = caller.answer()
            if found.status == 307:
                assert found.header("location") == f"http://app.main.localhost:3000{there}"
            return found.status

        assert status("127.0.0.1:3000", PAGE) == 307
        assert status("app.main.localhost:3000", PAGE, there) == 200
        for headers in (
            [],
            PAGE[:1],
            [*PAGE[:1], ("Sec-Fetch-Dest", "iframe")],
            [*PAGE, ("X-Forwarded-For", "10.0.0.9")],
        ):
            assert status("127.0.0.1:3000", headers) == 200
        assert status("dstack.example.com", PAGE) == 200


def test_no_service_by_path_gets_a_service_worker(replica: Replica) -> None:
    with opened() as door, Caller(door.address) as caller:
        door.serve(service((replica,)))
        for host, target, status in (("h", "/proxy/services/main/app/echo", 403), ("app.main.localhost", "/echo", 200)):
            caller.head("GET", target, host, [("Service-Worker", "script")])
            answer = caller.answer()
            assert answer.status == status
            caller.head("GET", target, host)
            policies = caller.answer().all("content-security-policy")
            assert [policy.split()[0] for policy in policies] == (["sandbox"] if status == 403 else [])

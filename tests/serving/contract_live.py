"""More of the suite of doors (`contract.py`): streams, WebSockets, who may come, and who means harm."""

from __future__ import annotations

import base64
import http.client
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from chalicelib.domain.serving import ServedModel
from tests.harness.server import until
from tests.serving.app import OWN_PAGE
from tests.serving.caller import Caller
from tests.serving.contract import Doors, Open, Spawn
from tests.serving.door import STRANGER, TOKEN, Door, Replica, Visitor, bearer, values


def events(response: http.client.HTTPResponse) -> Iterator[str]:
    """The events of a stream, as they come."""
    while line := response.readline():
        if line.startswith(b"data: "):
            yield line[6:].strip().decode()


def stepwise(response: http.client.HTTPResponse, replica: Replica, pace: str) -> list[str]:
    """The events of a stream of which the replica sends none before the last has arrived."""
    found = []
    for event in events(response):
        found.append(event)
        replica.step(pace)
    return found


class Streams(Doors):
    def test_events_leave_as_they_come(self, visitor: Visitor, replica: Replica) -> None:
        pace = os.urandom(4).hex()
        with visitor.connect() as caller:
            caller.head("GET", f"/stream?n=10&pace={pace}", visitor.host)
            response = caller.begin()
            assert response.getheader("content-type") == "text/event-stream"
            found = stepwise(response, replica, pace)
        assert len(found) == 11 and found[-1] == "[DONE]"

    def test_a_stream_that_breaks_is_seen_to_break(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            caller.head("GET", "/stream?n=10&gap=0.01&fail=4", visitor.host)
            response = caller.begin()
            got = b""
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                while True:
                    part = response.read1(65536)
                    assert part, "the stream ended as if it were whole"
                    got += part
        assert got.count(b"data: ") == 3

    @pytest.mark.parametrize("how", ["length", "chunks"])
    def test_half_a_response_isnt_passed_off_as_whole(self, visitor: Visitor, how: str) -> None:
        with visitor.connect() as caller:
            caller.head("GET", f"/cut?how={how}", visitor.host)
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                caller.answer()

    def test_a_models_last_chunk_with_its_usage_arrives(self, open: Open) -> None:
        visitor = open(model=ServedModel(name="m"))
        body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "n_tokens": 7}
        answer = visitor.ask("/v1/chat/completions", "POST", body=json.dumps(body).encode())
        lines = [line for line in answer.body.decode().split("\n") if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[-2][6:])["usage"]["completion_tokens"] == 7

    def test_fifty_streams_at_once_come_whole(self, visitor: Visitor) -> None:
        def one(_: int) -> list[str]:
            with visitor.connect() as caller:
                caller.head("GET", "/stream?n=20&gap=0.05", visitor.host)
                return list(events(caller.begin()))

        with ThreadPoolExecutor(50) as threads:
            found = list(threads.map(one, range(50)))
        assert all(len(each) == 21 and each[-1] == "[DONE]" for each in found)

    def test_a_client_that_leaves_ends_the_replicas_work(self, visitor: Visitor, replica: Replica) -> None:
        key = os.urandom(4).hex()
        with visitor.connect() as caller:
            caller.head("GET", f"/wait?key={key}", visitor.host)
            until("the request to arrive", lambda: replica.seen()["came"].get(key))
        until("the replica to notice", lambda: replica.seen()["left"].get(key))

    def test_a_client_that_leaves_a_stream_ends_it(self, visitor: Visitor, door: Door) -> None:
        with visitor.connect() as caller:
            caller.head("GET", "/stream?n=1000000&gap=0.02", visitor.host)
            caller.begin().read1(10)

        def over() -> bool:
            found = door.traffic(visitor.service)
            return found is not None and found.quiet

        until("nothing to be under way", over)


class WebSockets(Doors):
    KEY = base64.b64encode(b"0123456789abcdef").decode()

    def upgrade(self, caller: Caller, visitor: Visitor, target: str = "/ws", *more: tuple[str, str]) -> bytes:
        """The head of the response."""
        headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", self.KEY)]
        caller.head("GET", target, visitor.host, [*headers, ("Sec-WebSocket-Version", "13"), *more])
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            part = caller.socket.recv(1)
            assert part, head
            head += part
        return head

    @staticmethod
    def frame(payload: bytes, opcode: int = 2) -> bytes:
        mask, size = b"\x01\x02\x03\x04", len(payload)
        length = b"\xff" + size.to_bytes(8, "big")
        if size < 65536:
            length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        return bytes([0x80 | opcode]) + length + mask + masked

    @staticmethod
    def receive(caller: Caller, count: int) -> bytes:
        got = b""
        while len(got) < count:
            part = caller.socket.recv(count - len(got))
            assert part, "the connection ended"
            got += part
        return got

    @pytest.mark.parametrize("headers", [(), (("Connection", "Upgrade"), ("Upgrade", "odd"))])
    def test_a_replica_switches_to_nothing_else(self, visitor: Visitor, headers: tuple[tuple[str, str], ...]) -> None:
        """Whatever else came over the connection would go to it as it is."""
        with visitor.connect() as caller:
            caller.head("GET", "/odd?how=switch", visitor.host, headers)
            assert b" 101 " not in caller.socket.recv(4096)

    def test_frames_go_both_ways(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            head = self.upgrade(caller, visitor, "/ws", ("Sec-WebSocket-Protocol", "chat"))
            assert head.startswith(b"HTTP/1.1 101")
            assert b"sec-websocket-protocol: chat" in head.lower()
            for payload in (b"hello", b"", b"x" * 200):
                caller.send(self.frame(payload))
                prefix = 2 if len(payload) < 126 else 4
                assert self.receive(caller, prefix + len(payload))[prefix:] == payload

    def test_large_messages_arrive(self, visitor: Visitor) -> None:
        payload = os.urandom(300_000)
        with visitor.connect() as caller:
            self.upgrade(caller, visitor)
            threading.Thread(target=caller.send, args=(self.frame(payload),)).start()
            assert self.receive(caller, 10 + len(payload))[10:] == payload

    def test_a_ping_is_the_replicas_to_answer(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            self.upgrade(caller, visitor)
            caller.send(self.frame(b"here?", opcode=9))
            assert self.receive(caller, 7) == b"\x8a\x05here?"

    def test_what_is_sent_with_the_request_arrives(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            lines = ["GET /ws HTTP/1.1", f"Host: {visitor.host}", "Connection: Upgrade", "Upgrade: websocket"]
            lines += [f"Sec-WebSocket-Key: {self.KEY}", "Sec-WebSocket-Version: 13", "", ""]
            caller.send("\r\n".join(lines).encode() + self.frame(b"early"))
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += caller.socket.recv(1)
            assert self.receive(caller, 7)[2:] == b"early"

    def test_closing_closes_both_ends(self, visitor: Visitor, replica: Replica) -> None:
        before = replica.seen()["left"].get("ws", 0)
        with visitor.connect() as caller:
            self.upgrade(caller, visitor)
            caller.send(self.frame(b"\x03\xe8", opcode=8))
            assert self.receive(caller, 4) == b"\x88\x02\x03\xe8"
            assert caller.ended()
        until("the replica's end", lambda: replica.seen()["left"].get("ws", 0) > before)

    def test_a_client_that_vanishes_takes_the_replicas_end_along(self, visitor: Visitor, replica: Replica) -> None:
        before = replica.seen()["left"].get("ws", 0)
        with visitor.connect() as caller:
            self.upgrade(caller, visitor)
        until("the replica's end", lambda: replica.seen()["left"].get("ws", 0) > before)

    def test_a_replica_may_refuse_the_upgrade(self, visitor: Visitor) -> None:
        headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", self.KEY)]
        answer = visitor.ask("/ws-refused", headers=headers)
        assert (answer.status, answer.body) == (403, b"not here")

    def test_a_member_may_and_a_stranger_may_not(self, open: Open) -> None:
        visitor = open(auth=True)
        with visitor.connect() as caller:
            assert self.upgrade(caller, visitor, "/ws", bearer(TOKEN)).startswith(b"HTTP/1.1 101")
        with visitor.connect() as caller:
            assert self.upgrade(caller, visitor, "/ws", bearer(STRANGER)).startswith(b"HTTP/1.1 403")

    def test_an_upgrade_to_anything_else_is_a_plain_request(self, visitor: Visitor) -> None:
        got = visitor.echo(headers=[("Connection", "Upgrade"), ("Upgrade", "h2c")])
        assert not values(got, "upgrade")


class WhoMayCome(Doors):
    def test_a_member_may(self, open: Open) -> None:
        assert open(auth=True).ask("/echo", headers=[bearer(TOKEN)]).status == 200

    def test_their_token_never_reaches_the_replica(self, open: Open) -> None:
        got = open(auth=True).echo(headers=[bearer(TOKEN), ("X-Other", "1")])
        assert TOKEN not in json.dumps(got)

    def test_without_auth_the_header_is_the_applications_own(self, open: Open) -> None:
        assert values(open(auth=False).echo(headers=[bearer("mine")]), "authorization") == ["Bearer mine"]

    @pytest.mark.parametrize("given", [[], [bearer("nobody's")], [bearer("")], [("Authorization", f"Basic {TOKEN}")]])
    def test_nobody_else_may(self, open: Open, replica: Replica, given: list[tuple[str, str]]) -> None:
        visitor, before = open(auth=True), replica.seen()["requests"]
        assert visitor.ask("/echo", headers=given).status == 403
        assert replica.seen()["requests"] == before + 1  # the question itself

    def test_members_of_other_projects_may_not(self, open: Open) -> None:
        assert open(auth=True).ask("/echo", headers=[bearer(STRANGER)]).status == 403

    def test_who_may_not_come_is_told_no_names(self, open: Open) -> None:
        visitor = open(auth=True, name="secretive")
        for given in ([], [bearer(STRANGER)], [bearer("nobody's")]):
            text = visitor.ask("/echo", headers=given).body.decode()
            assert "main" not in text and visitor.service.run_name not in text

    def test_two_tokens_in_one_request_are_none(self, open: Open) -> None:
        answer = open(auth=True).ask("/echo", headers=[bearer(TOKEN), bearer("another")])
        assert answer.status in (400, 403)

    def test_a_revoked_token_is_refused(self, open: Open, door: Door) -> None:
        visitor = open(auth=True)
        assert visitor.ask("/echo", headers=[bearer(TOKEN)]).status == 200
        door.allow(TOKEN)
        assert visitor.ask("/echo", headers=[bearer(TOKEN)]).status == 403

    def test_a_body_isnt_read_before_its_sender_is_known(self, open: Open) -> None:
        visitor = open(auth=True)
        with visitor.connect() as caller:
            caller.head("POST", "/echo", visitor.host, [("Content-Length", "5000000"), ("Expect", "100-continue")])
            assert caller.answer().status == 403

    def test_a_browser_may_ask_a_model_first(self, open: Open) -> None:
        visitor = open(auth=True, model=ServedModel(name="m"))
        headers = [
            ("Origin", "https://app.example"),
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization,content-type"),
        ]
        answer = visitor.ask("/v1/chat/completions", "OPTIONS", headers)
        assert (answer.status, answer.body) == (204, b"")
        assert answer.header("access-control-allow-origin") == "*"
        assert "authorization" in (answer.header("access-control-allow-headers") or "").lower()
        assert "POST" in (answer.header("access-control-allow-methods") or "")
        assert answer.header("access-control-max-age") == "600"

    def test_pages_may_read_what_a_model_answers_unless_the_application_has_its_own_word(self, open: Open) -> None:
        visitor = open(model=ServedModel(name="m"))
        for origin, allowed in (("https://app.example", "*"), (OWN_PAGE, OWN_PAGE)):
            answer = visitor.ask("/v1/x", headers=[("Origin", origin)])
            assert answer.all("access-control-allow-origin") == [allowed]
        assert visitor.ask("/v1/x").all("access-control-allow-origin") == []

    def test_other_services_answer_such_questions_themselves(self, open: Open) -> None:
        headers = [("Origin", "https://app.example"), ("Access-Control-Request-Method", "POST")]
        assert open(auth=False).echo("/echo", method="OPTIONS", headers=headers)["method"] == "OPTIONS"

    def test_pages_may_read_only_what_a_model_answers(self, open: Open) -> None:
        headers = [("Origin", "https://app.example"), bearer(TOKEN)]
        answer = open(auth=True).ask("/echo", headers=headers)
        assert (answer.status, answer.all("access-control-allow-origin")) == (200, [])

    def test_behind_a_router_only_its_paths_are_reached(self, open: Open) -> None:
        visitor = open(routed=True)
        for target in ("/v1/models", "/health", "/generate"):
            assert visitor.ask(target).status == 200, target
        for target in ("/", "/workers", "/v2/x", "/healthy", "/v1", "/v1/../workers", "/generate/../workers"):
            assert visitor.ask(target).status in (400, 403), target


class Tricks(Doors):
    """What is sent by somebody who means harm."""

    def test_an_unknown_host_reaches_no_service(self, visitor: Visitor) -> None:
        for host in (f"no-such.{visitor.host}", visitor.host.replace("app", "no-such", 1)):
            with visitor.connect() as caller:
                caller.head("GET", "/echo", host)
                assert caller.answer().status in (403, 404)

    def test_hosts_are_read_as_names_are(self, visitor: Visitor) -> None:
        name = visitor.host.partition(":")[0]
        for host in (name.upper(), f"{name}:{visitor.door.address[1]}", name + "."):
            with visitor.connect() as caller:
                caller.head("GET", "/echo", host)
                assert caller.answer().status == 200, host

    def test_one_service_isnt_reached_by_way_of_another(self, door: Door, visitor: Visitor, spawn: Spawn) -> None:
        second = self.other(door, visitor, spawn("second"), auth=True)
        got = visitor.echo(headers=[("X-Forwarded-Host", second.host), ("X-Original-Host", second.host)])
        assert got["replica"] == "replica"
        with visitor.connect() as caller:  # two hosts in one request
            caller.head("GET", "/echo", visitor.host, [("Host", second.host)])
            answer = caller.answer()
            assert answer.status == 400 or answer.json()["replica"] == "replica"

    def test_an_absolute_target_gives_no_way_round(self, door: Door, visitor: Visitor, spawn: Spawn) -> None:
        """Its path goes on, and whichever of the two hosts counts, a service that wants a token gets one."""
        second = self.other(door, visitor, spawn("second"), auth=True)
        with visitor.connect() as caller:
            caller.head("GET", f"http://{visitor.host}/echo?x=1", visitor.host)
            assert caller.answer().json()["target"] == "/echo?x=1"
        with visitor.connect() as caller:
            caller.head("GET", f"http://{second.host}/echo", visitor.host)
            answer = caller.answer()
            assert answer.status in (400, 403) or answer.json()["replica"] == "replica"

    @pytest.mark.parametrize(
        "target",
        [
            "/a/../b",
            "/..",
            "/a/%2e%2e/b",
            "/%2E./b",
            "/./a",
            "/a/%2e/b",
            "/a/..%2fb",
            "/..%5cb",
            "/..;/b",
            "/a/.%3Bx/b",
        ],
    )
    def test_paths_that_climb_are_refused(self, visitor: Visitor, target: str) -> None:
        assert visitor.ask(target).status == 400

    @pytest.mark.parametrize("target", ["*", "*@{other}/echo", "*:@{other}/echo", "@{other}/echo"])
    def test_a_target_thats_no_path_leads_nowhere_else(self, visitor: Visitor, spawn: Spawn, target: str) -> None:
        other = spawn("other")
        before = other.seen()["requests"]
        with visitor.connect() as caller:
            caller.head("GET", target.format(other=f"127.0.0.1:{other.port}"), visitor.host)
            assert caller.answer().status == 400
        assert other.seen()["requests"] == before + 1, "it has heard of it"

    def test_dots_that_dont_climb_are_none_of_our_business(self, visitor: Visitor) -> None:
        target = "/.well-known/a..b/...?next=../x"
        assert visitor.echo(target)["target"] == target

    @pytest.mark.parametrize(
        "lines",
        [
            ["Content-Length: 6", "Transfer-Encoding: chunked"],
            ["Transfer-Encoding: chunked", "Content-Length: 6"],
            ["Content-Length: 6", "Content-Length: 5"],
            ["Content-Length: +6"],
            ["Transfer-Encoding: xchunked"],
            ["Transfer-Encoding: chunked, identity"],
            ["Content-Length : 6"],
            ["X: a", " folded: b"],
            ["Transfer-Encoding: gzip, chunked"],
            ["X(Odd): 1"],
            ["X Odd: 1"],
            ["Content-Len\x80gth: 6"],
            ["Host: another.example"],
            ["X-Many: 1"] * 130,
        ],
    )
    def test_requests_with_two_readings_are_refused(self, visitor: Visitor, replica: Replica, lines: list[str]) -> None:
        before = replica.seen()["requests"]
        with visitor.connect() as caller:
            head = ["POST /echo HTTP/1.1", f"Host: {visitor.host}", *lines, "", ""]
            caller.send("\r\n".join(head).encode("latin-1") + b"0\r\n\r\n")
            with suppress(http.client.HTTPException, ConnectionError):  # closed without a word is a refusal too
                answer = caller.answer()
                assert answer.status in (400, 411, 431, 501)
                assert answer.header("connection") == "close", "what follows would be read as a request"
        assert replica.seen()["requests"] == before + 1, "something reached the replica"

    @pytest.mark.parametrize(
        "named", ["content-length", "Content-Length, host", "transfer-encoding, HOST", "x-a,content-length"]
    )
    @pytest.mark.parametrize("chunked", [False, True])
    def test_no_header_that_frames_is_removed_by_naming_it(self, visitor: Visitor, named: str, chunked: bool) -> None:
        """Its body would be the next request on the replica's connection, which is everybody's."""
        body = f"GET /smuggled HTTP/1.1\r\nHost: {visitor.host}\r\n\r\n".encode()
        frame = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body)))
        for _ in range(2):
            with visitor.connect() as caller:
                caller.head("POST", "/echo", visitor.host, [frame, ("Connection", named)])
                caller.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
                got = caller.answer().json()
            assert (got["target"], got["body"], values(got, "host")) == ("/echo", body.decode(), [visitor.host])
        assert visitor.echo("/after")["target"] == "/after"

    def test_a_replica_that_names_them_changes_nothing(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            for _ in range(2):
                caller.head("GET", "/named", visitor.host)
                assert caller.answer().body == b"named"

    @pytest.mark.parametrize("name", ["Content_Length", "Transfer_Encoding", "Transfer-Encoding_", "content_length"])
    def test_nothing_that_reads_like_framing_goes_on(self, visitor: Visitor, name: str) -> None:
        got = visitor.echo(method="POST", body=b"body", headers=[("Content-Length", "4"), (name, "0")])
        assert got["body"] == "body"
        assert not [each for each, _ in got["headers"] if each in ("content_length", "transfer_encoding")]

    @pytest.mark.parametrize("length", ["5 ", "  5", "0005"])
    def test_a_length_with_blanks_is_a_length(self, visitor: Visitor, length: str) -> None:
        assert visitor.echo(method="POST", body=b"hello", headers=[("Content-Length", length)])["body"] == "hello"

    @pytest.mark.parametrize("wanted", ["h2c", "other/1, h2c"])
    def test_a_request_that_would_rather_have_another_protocol_keeps_its_body(
        self, visitor: Visitor, wanted: str
    ) -> None:
        """Java's client asks for HTTP/2 with its first request, whatever that is."""
        headers = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", wanted), ("HTTP2-Settings", "AAMAAABk")]
        with visitor.connect() as caller:
            for frame, sent in (
                (("Content-Length", "4"), b"body"),
                (("Transfer-Encoding", "chunked"), b"4\r\nbody\r\n0\r\n\r\n"),
            ):
                caller.head("POST", "/echo", visitor.host, [*headers, frame])
                caller.send(sent)
                got = caller.answer().json()
                assert got["body"] == "body" and not values(got, "http2-settings") + values(got, "upgrade")

    @pytest.mark.parametrize("target", ["http://{other}/echo", "https://x@{host}/echo", "ftp://{host}/echo"])
    def test_a_target_with_another_host_is_refused(self, visitor: Visitor, target: str) -> None:
        other = visitor.host.replace("app", "else", 1)
        with visitor.connect() as caller:
            caller.head("GET", target.format(host=visitor.host, other=other), visitor.host)
            assert caller.answer().status in (400, 404)

    def test_an_answer_before_the_end_of_the_body_ends_the_connection_or_reads_it(self, visitor: Visitor) -> None:
        """What is left of a body is never a request."""
        rest = f"GET /smuggled HTTP/1.1\r\nHost: {visitor.host}\r\n\r\n".encode()
        with visitor.connect() as caller:
            caller.head("POST", "/at-once", visitor.host, [("Transfer-Encoding", "chunked")])
            caller.send(b"1\r\nx\r\n")
            assert caller.answer().body == b"at once"
            with suppress(ConnectionError):
                caller.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))
            caller.head("GET", "/after", visitor.host)
            with suppress(http.client.HTTPException, ConnectionError):
                assert caller.answer().json()["target"] == "/after"

    @pytest.mark.parametrize("target", ["/named?surplus=1", "/status/204?surplus=1"])
    def test_surplus_behind_an_answer_is_nobodys(self, visitor: Visitor, target: str) -> None:
        for _ in range(3):
            visitor.ask(target)
            assert "poison" not in str(visitor.echo("/echo"))

    def test_a_request_without_a_host_is_refused(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            caller.send(b"GET /echo HTTP/1.1\r\n\r\n")
            assert caller.answer().status in (400, 404)
        with visitor.connect() as caller:
            caller.send(f"GET http://{visitor.host}/echo HTTP/1.0\r\n\r\n".encode())
            assert caller.answer().status in (400, 404)

    def test_nothing_of_the_doors_own_is_reached_under_a_services_host(self, visitor: Visitor) -> None:
        for target in (
            "/api/server/get_info",
            "/proxy/services/main/app/",
            "/proxy/models/main/models",
            "/healthcheck",
            "/nginx_status",
        ):
            assert visitor.echo(target)["target"] == target

    @pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
    def test_methods_of_proxies_are_refused(self, visitor: Visitor, method: str) -> None:
        with visitor.connect() as caller:
            caller.head(method, "/echo" if method == "TRACE" else "example.com:80", visitor.host)
            with suppress(http.client.HTTPException, ConnectionError):
                assert caller.answer().status in (400, 403, 405, 501)

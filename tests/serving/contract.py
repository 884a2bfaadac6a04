"""What a door to services must do, whoever keeps it: the server itself or a gateway.

A door joins with a subclass that gives it (`facts`, `door`), and nobody is excused from a case. Services are reached
by their hosts here, which every door knows; what only the server's paths under /proxy/ can do is marked.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from chalicelib.domain.serving import Served
from chalicelib.serving.headers import OURS
from tests.harness.conformance import Conformance, needs
from tests.serving.door import STRANGER, TOKEN, Door, Replica, Visitor, service, values

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
Spawn = Callable[..., Replica]
Open = Callable[..., Visitor]


class Doors(Conformance):
    """The fixtures of the suite."""

    hold = 600.0  # seconds that the door lets a request wait for a replica: longer than any test

    @pytest.fixture
    def door(self) -> Any:
        """An open door that knows no services; TOKEN is of a member of `main`, STRANGER of one of `other`."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def replica(cls) -> Iterator[Replica]:
        made = Replica()
        yield made
        made.stop()

    @pytest.fixture
    def spawn(self) -> Iterator[Spawn]:
        """More replicas, each a process of its own."""
        made: list[Replica] = []

        def more(name: str, **given: Any) -> Replica:
            made.append(Replica(name, **given))
            return made[-1]

        yield more
        for each in made:
            each.stop()

    @pytest.fixture
    def open(self, door: Door, replica: Replica) -> Open:
        """Serve one service, of the fixture's replica unless told otherwise."""

        def serve(*replicas: Any, **fields: Any) -> Visitor:
            made = service(replicas or (replica,), **fields)
            door.allow(TOKEN, "main")
            door.allow(STRANGER, "other")
            door.serve(made)
            return Visitor(door, made)

        return serve

    @pytest.fixture
    def visitor(self, open: Open) -> Visitor:
        return open()

    def other(self, door: Door, first: Visitor, *replicas: Any, **fields: Any) -> Visitor:
        """A second service beside the first."""
        made: Served = service(replicas, **{"name": "second", **fields})
        door.serve(first.service, made)
        return Visitor(door, made)


class PassesOn(Doors):
    """What comes to the replica, and what comes back, is what was sent."""

    @pytest.mark.parametrize("method", METHODS)
    def test_every_method_passes(self, visitor: Visitor, method: str) -> None:
        assert visitor.echo("/echo", method=method)["method"] == method

    def test_head_has_headers_and_no_body(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            caller.head("HEAD", "/bytes?n=1000", visitor.host)
            answer = caller.answer("HEAD")
            assert (answer.status, answer.header("content-length"), answer.body) == (200, "1000", b"")
            caller.head("GET", "/echo", visitor.host)  # and the connection is as good as before
            assert caller.answer().status == 200

    @pytest.mark.parametrize(
        "target",
        [
            "/echo?a=1&a=2&b=",
            "/echo?q=%20%2B+%C3%A9&x=%3D%26",
            "/echo?a[]=1;b='2'&|",
            "/echo/%C3%A9/%20/%2F/%25",
            "/echo//twice///thrice",
            "/echo/a%2fb;v=1,2/@:$!*()'~",
            "/",
        ],
    )
    def test_path_and_query_come_as_they_were_sent(self, visitor: Visitor, target: str) -> None:
        assert visitor.echo(target)["target"] == target

    def test_a_long_query_comes_whole(self, visitor: Visitor) -> None:
        target = "/echo?q=" + "x" * 7000
        assert visitor.echo(target)["target"] == target

    def test_headers_that_come_twice_arrive_twice_in_order(self, visitor: Visitor) -> None:
        got = visitor.echo(headers=[("X-Many", "one"), ("X-Other", "o"), ("X-Many", "two")])
        assert values(got, "x-many") == ["one", "two"]

    def test_odd_header_values_arrive(self, visitor: Visitor) -> None:
        got = visitor.echo(headers=[("X-Odd", "a=\"b\", c;d='e' {}[]"), ("X-Accents", "caf\xc3\xa9"), ("X-Empty", "")])
        assert values(got, "x-odd") == ["a=\"b\", c;d='e' {}[]"]
        assert values(got, "x-accents") == ["caf\xc3\xa9"]  # the bytes of UTF-8
        assert values(got, "x-empty") == [""]

    def test_what_a_client_accepts_and_is_goes_on(self, visitor: Visitor) -> None:
        given = [
            ("Accept", "text/html"),
            ("Accept-Encoding", "br;q=1.0"),
            ("User-Agent", "me/1"),
            ("Range", "bytes=0-1"),
        ]
        got = visitor.echo(headers=given)
        assert [values(got, name.lower()) for name, _ in given] == [[value] for _, value in given]

    def test_a_door_adds_no_headers_that_speak_for_the_client(self, visitor: Visitor) -> None:
        got = visitor.echo()
        assert not [name for name, _ in got["headers"] if name in ("accept", "accept-encoding", "user-agent", "cookie")]
        assert not values(got, "content-type")

    @pytest.mark.parametrize("code", [200, 201, 204, 301, 304, 400, 404, 418, 429, 500, 502, 503, 599])
    def test_every_status_of_the_replica_comes_back(self, visitor: Visitor, code: int) -> None:
        assert visitor.ask(f"/status/{code}").status == code

    def test_two_cookies_come_back_as_two_headers(self, visitor: Visitor) -> None:
        answer = visitor.ask("/cookies", headers=[("Cookie", "mine=1; also=2")])
        assert answer.all("set-cookie") == ["a=1; Path=/", "b=2"]
        assert answer.body == b"mine=1; also=2"

    def test_cookies_of_one_client_never_reach_the_next_request(self, visitor: Visitor) -> None:
        visitor.ask("/cookies")
        assert visitor.ask("/cookies").body == b""

    def test_no_cookie_of_one_service_is_for_another_host(self, visitor: Visitor) -> None:
        name = visitor.host.partition(":")[0]
        wide = name.partition(".")[2]
        given = [f"a=1; Domain={wide}; Path=/", f"b=2; DOMAIN = .{wide}", f"c=3;domain={name}; Secure", "d=4; Domain"]
        answer = visitor.ask("/cookies?set=" + quote("|".join(given)))
        cookies = answer.all("set-cookie")
        assert [each.partition(";")[0] for each in cookies] == ["a=1", "b=2", "c=3", "d=4"]
        found = [each.lower().replace(" ", "").partition("domain=")[2].partition(";")[0] for each in cookies]
        assert set(found) <= {"", name}
        assert "Path=/" in cookies[0] and "Secure" in cookies[2]

    def test_redirects_are_the_clients_to_follow(self, visitor: Visitor) -> None:
        answer = visitor.ask("/redirect")
        assert (answer.status, answer.header("location")) == (302, "/elsewhere?x=1")

    def test_compressed_bodies_stay_compressed(self, visitor: Visitor) -> None:
        answer = visitor.ask("/gzip", headers=[("Accept-Encoding", "gzip")])
        assert answer.header("content-encoding") == "gzip"
        assert gzip.decompress(answer.body) == b"squeezed" * 100

    def test_trailers_disturb_nothing(self, visitor: Visitor) -> None:
        assert visitor.ask("/trailers").body == b"whole"

    @needs("hints")
    def test_early_hints_disturb_nothing(self, visitor: Visitor) -> None:
        answer = visitor.ask("/early-hints")  # the client's library skips hints, if they come through
        assert (answer.status, answer.body) == (200, b"after the hints")

    def test_a_connection_serves_many_requests(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            for number in range(20):
                caller.head("GET", f"/echo?{number}", visitor.host)
                assert caller.answer().json()["target"] == f"/echo?{number}"

    def test_pipelined_requests_are_answered_in_order(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            one = f"GET /echo?%d HTTP/1.1\r\nHost: {visitor.host}\r\n\r\n"
            caller.send("".join(one % number for number in range(4)).encode())
            assert [caller.answer().json()["target"][-1] for _ in range(4)] == list("0123")


class Headers(Doors):
    """What a door takes away, and what it adds."""

    def test_headers_of_one_hop_go_no_further(self, visitor: Visitor) -> None:
        got = visitor.echo(
            headers=[
                ("Connection", "keep-alive, X-Mine"),
                ("X-Mine", "hop"),
                ("Keep-Alive", "timeout=5"),
                ("Proxy-Authorization", "Basic x"),
                ("TE", "trailers"),
                ("X-Stays", "yes"),
            ]
        )
        names = {name for name, _ in got["headers"]}
        assert not names & {"x-mine", "keep-alive", "proxy-authorization", "te"}
        assert "x-stays" in names

    def test_the_replica_learns_who_asked_and_how(self, visitor: Visitor) -> None:
        got = visitor.echo()
        assert values(got, "x-forwarded-for") == ["127.0.0.1"]
        assert values(got, "x-forwarded-proto") == ["http"]
        assert values(got, "x-forwarded-host") == [visitor.host]
        assert values(got, "host") == [visitor.host]

    def test_what_clients_claim_about_themselves_is_no_ones_word_but_theirs(self, visitor: Visitor) -> None:
        got = visitor.echo(
            headers=[
                ("X-Forwarded-For", "6.6.6.6"),
                ("X-Forwarded-Proto", "gopher"),
                ("X-Forwarded-Host", "bank.example"),
                ("X-Real-IP", "6.6.6.6"),
                ("X-Forwarded-Prefix", "/bank"),
                *(("X_Forwarded_For", "6.6.6.6"), ("X-Forwarded_Host", "bank.example"), ("X_Real-IP", "6.6.6.6")),
            ]
        )
        assert not [name for name, _ in got["headers"] if "_" in name] and not values(got, "x-forwarded-prefix")
        assert ", ".join(values(got, "x-forwarded-for")).split(", ")[-1] == "127.0.0.1"
        assert values(got, "x-forwarded-proto") == ["http"]
        assert values(got, "x-forwarded-host") == [visitor.host]
        assert values(got, "x-real-ip") in ([], ["127.0.0.1"])

    @pytest.mark.parametrize("name", [name.decode() for name in OURS if name not in (b"x-forwarded-for", b"x-real-ip")])
    def test_what_a_proxy_would_say_is_no_clients_to_say(self, visitor: Visitor, name: str) -> None:
        got = visitor.echo(headers=[(name, "said=6.6.6.6"), (name.replace("-", "_"), "said=6.6.6.6")])
        assert "said=6.6.6.6" not in [value for _, value in got["headers"]]

    @pytest.mark.parametrize("given", [["a b"], ["x" * 129], ["a;b"], ['a"b']])
    def test_an_id_that_isnt_fit_to_be_repeated_is_replaced(self, visitor: Visitor, given: list[str]) -> None:
        answer = visitor.ask("/echo", headers=[("X-Request-Id", each) for each in given])
        (got,) = values(answer.json(), "x-request-id")
        assert got == answer.header("x-request-id") and got not in given

    def test_a_request_has_an_id_that_both_sides_see(self, visitor: Visitor) -> None:
        answer = visitor.ask("/echo")
        given = values(answer.json(), "x-request-id")
        assert len(given) == 1 and len(given[0]) >= 16
        assert answer.all("x-request-id") == given
        assert visitor.ask("/echo").header("x-request-id") != given[0]

    def test_the_id_of_a_client_is_kept(self, visitor: Visitor) -> None:
        answer = visitor.ask("/echo", headers=[("X-Request-Id", "mine-17")])
        assert values(answer.json(), "x-request-id") == ["mine-17"]
        assert answer.header("x-request-id") == "mine-17"

    def test_the_response_says_which_replica_answered(self, visitor: Visitor, replica: Replica) -> None:
        assert visitor.ask("/echo").header("x-replica") == replica.id

    def test_no_replica_poses_as_another_and_headers_of_one_hop_come_no_further(
        self, visitor: Visitor, replica: Replica
    ) -> None:
        answer = visitor.ask("/posing")
        assert answer.all("x-replica") == [replica.id]
        assert answer.header("x-hop") is None and answer.header("x-stays") == "1"

    def test_16_kb_of_headers_are_enough(self, visitor: Visitor) -> None:
        fits = [(f"X-Fill-{number}", "x" * 1000) for number in range(14)]
        assert visitor.ask("/echo", headers=fits).status == 200

    @pytest.mark.parametrize("lines", [1, 20])
    def test_more_are_refused(self, visitor: Visitor, lines: int) -> None:
        answer = visitor.ask("/echo", headers=[(f"X-Fill-{n}", "x" * (20_000 // lines)) for n in range(lines)])
        assert answer.status == 431


class Bodies(Doors):
    def test_a_body_arrives_byte_by_byte(self, visitor: Visitor) -> None:
        body = bytes(range(256)) * 100
        got = visitor.echo(method="POST", body=body, headers=[("Content-Type", "application/x-odd; a=b")])
        assert (got["length"], got["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
        assert values(got, "content-type") == ["application/x-odd; a=b"]
        assert values(got, "content-length") == [str(len(body))]

    def test_a_chunked_body_arrives(self, visitor: Visitor) -> None:
        sent = b"5\r\nhello\r\n1;ext=1\r\n \r\n5\r\nworld\r\n0\r\n\r\n"
        got = visitor.echo(method="POST", body=sent, headers=[("Transfer-Encoding", "chunked")])
        assert got["body"] == "hello world"

    def test_an_empty_post_arrives(self, visitor: Visitor) -> None:
        assert visitor.echo(method="POST", headers=[("Content-Length", "0")])["length"] == 0

    def test_a_length_may_begin_with_zeros_and_what_follows_is_the_next_request(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            for body in (b"first", b"second"):
                caller.head("POST", "/echo", visitor.host, [("Content-Length", f"{len(body):030}")])
                caller.send(body)
                assert caller.answer().json()["body"] == body.decode()

    @pytest.mark.parametrize("target", ["/stream?n=3&gap=0", "/bytes?n=100000&chunked=1"])
    def test_clients_of_http_1_0_get_no_chunks(self, visitor: Visitor, target: str) -> None:
        with visitor.connect() as caller:
            caller.head("GET", target, visitor.host, version="1.0")
            answer = caller.answer()
            assert (answer.status, answer.header("transfer-encoding")) == (200, None)
            assert answer.body.endswith(b"data: [DONE]\n\n") or answer.body == bytes(100_000)
            assert caller.ended()

    @pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
    def test_bodies_of_methods_that_seldom_have_one_arrive(self, visitor: Visitor, method: str) -> None:
        assert visitor.echo(method=method, body=b"query")["body"] == "query"

    @pytest.mark.parametrize("chunked", ["", "&chunked=1"])
    def test_large_responses_come_whole(self, visitor: Visitor, chunked: str) -> None:
        answer = visitor.ask(f"/bytes?n=3000000{chunked}")
        assert len(answer.body) == 3_000_000

    def test_a_client_that_waits_for_100_is_told_to_go_on(self, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            caller.head("POST", "/echo", visitor.host, [("Content-Length", "4"), ("Expect", "100-continue")])
            first = b""
            while b"\r\n\r\n" not in first:
                first += caller.socket.recv(1)
            assert first.startswith(b"HTTP/1.1 100")
            caller.send(b"body")
            assert caller.answer().json()["body"] == "body"

    def test_64_mb_are_streamed_not_kept(self, visitor: Visitor, door: Door) -> None:
        size, part = 64 * 2**20, b"0123456789abcdef" * 4096
        visitor.echo(method="POST", body=part)  # what is loaded once isn't counted
        before, most, digest = door.memory(), 0, hashlib.sha256()
        with visitor.connect() as caller:
            caller.head("POST", "/echo", visitor.host, [("Content-Length", str(size))])
            for number in range(size // len(part)):
                caller.send(part)
                digest.update(part)
                if number % 64 == 0:
                    most = max(most, door.memory())
            got = caller.answer().json()
        assert (got["length"], got["sha256"]) == (size, digest.hexdigest())
        assert most - before < 20 * 2**20

    def test_a_response_that_nobody_reads_isnt_kept(self, visitor: Visitor, door: Door) -> None:
        before = door.memory()
        with visitor.connect() as caller:
            caller.head("GET", "/bytes?n=100000000&chunked=1", visitor.host)
            response = caller.begin()
            got = most = 0
            while part := response.read(65536):
                got += len(part)
                if got % (64 * 65536) == 0:
                    most = max(most, door.memory())
        assert got == 100_000_000
        assert most - before < 20 * 2**20

    def test_a_body_over_the_limit_is_refused_before_it_is_sent(self, open: Open) -> None:
        visitor = open(body=2**20)
        with visitor.connect() as caller:
            caller.head("POST", "/echo", visitor.host, [("Content-Length", str(2**20 + 1))])
            assert caller.answer().status == 413

    def test_a_chunked_body_over_the_limit_is_refused_on_the_way(self, open: Open) -> None:
        visitor = open(body=2**20)
        chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
        answer = visitor.ask("/echo", "POST", [("Transfer-Encoding", "chunked")], chunk * 20 + b"0\r\n\r\n")
        assert answer.status == 413

    def test_the_limit_itself_is_allowed(self, open: Open) -> None:
        assert open(body=2**20).echo(method="POST", body=bytes(2**20))["length"] == 2**20

    def test_a_replica_may_answer_before_it_has_read_the_body(self, visitor: Visitor) -> None:
        answer = visitor.ask("/refuse", "POST", body=bytes(300_000))
        assert (answer.status, answer.body) == (413, b"large")

"""The last part of the suite of doors (`contract.py`): errors, limits, which replica is asked, and what is counted."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from chalicelib.domain.latencies import merged
from chalicelib.domain.serving import ServedModel, ServedReplica
from chalicelib.domain.specs.services import HeaderPartitioningKey, RateLimit
from tests.harness.conformance import needs
from tests.harness.server import until
from tests.serving.caller import Answer, Caller
from tests.serving.contract import Doors, Open, Spawn
from tests.serving.contract_live import events, stepwise
from tests.serving.door import TOKEN, Door, Replica, Visitor, bearer


class Errors(Doors):
    def test_an_error_says_what_and_how_to_mend(self, open: Open) -> None:
        answer = open(auth=True).ask("/echo")
        assert answer.header("content-type") == "application/json"
        (error,) = answer.json()["detail"]
        assert "Authorization" in error["msg"] and error["code"]

    def test_a_models_errors_are_shaped_as_openais(self, open: Open) -> None:
        answer = open(auth=True, model=ServedModel(name="m")).ask("/v1/chat/completions", "POST", body=b"{}")
        error = answer.json()["error"]
        assert answer.status == 403 and {"message", "type", "param", "code"} <= set(error)

    unknown = 404

    def test_an_unknown_service_is_refused(self, visitor: Visitor, door: Door) -> None:
        door.serve()
        answer = visitor.ask("/echo", headers=[bearer(TOKEN)])
        assert answer.status == self.unknown and answer.json()["detail"]

    def test_a_service_whose_replica_is_gone_is_502(self, open: Open, spawn: Spawn) -> None:
        gone = spawn("gone")
        visitor = open(gone)
        gone.kill()
        assert visitor.ask("/echo").status == 502

    @pytest.mark.parametrize("how", ["none", "head"])
    def test_a_replica_that_answers_nothing_is_502(self, visitor: Visitor, how: str) -> None:
        assert visitor.ask(f"/cut?how={how}").status == 502


class Limits(Doors):
    def limit(self, **fields: Any) -> RateLimit:
        return RateLimit(**{"rps": 1 / 60, **fields})

    def statuses(self, visitor: Visitor, count: int, target: str = "/echo", **request: Any) -> list[int]:
        return [visitor.ask(target, **request).status for _ in range(count)]

    def test_the_burst_passes_and_the_rest_is_refused(self, open: Open) -> None:
        visitor = open(rate_limits=(self.limit(burst=2),))
        assert self.statuses(visitor, 5) == [200, 200, 200, 429, 429]

    def test_who_is_refused_learns_when_to_come_again(self, open: Open) -> None:
        visitor = open(rate_limits=(self.limit(),))
        visitor.ask("/echo")
        answer = visitor.ask("/echo")
        assert answer.status == 429
        assert 1 <= int(answer.header("retry-after") or 0) <= 60
        assert answer.header("x-ratelimit-remaining") == "0"

    def test_it_passes_again_later(self, open: Open) -> None:
        visitor = open(rate_limits=(self.limit(rps=5),))
        assert visitor.ask("/echo").status == 200
        assert until("the next to pass", lambda: visitor.ask("/echo").status == 200)

    def test_the_longest_prefix_counts_alone(self, open: Open) -> None:
        visitor = open(rate_limits=(self.limit(), self.limit(prefix="/echo/free", burst=9)))
        assert self.statuses(visitor, 5, "/echo/free/x") == [200] * 5
        assert self.statuses(visitor, 2, "/echo/other") == [200, 429]

    def test_no_spelling_of_a_path_has_a_limit_of_its_own(self, open: Open) -> None:
        visitor = open(rate_limits=(self.limit(prefix="/echo/slow"),))
        targets = ("/echo/slow", "/%65cho/slow", "//echo///slow", "/echo/slow?x=1")
        assert [visitor.ask(target).status for target in targets] == [200, 429, 429, 429]

    def test_paths_without_a_limit_have_none(self, open: Open) -> None:
        visitor = open(rate_limits=(self.limit(prefix="/echo/slow"),))
        assert self.statuses(visitor, 4) == [200] * 4

    def test_a_header_tells_clients_apart(self, open: Open) -> None:
        visitor = open(rate_limits=(self.limit(key=HeaderPartitioningKey(type="header", header="X-Key")),))
        assert self.statuses(visitor, 2, headers=[("X-Key", "a")]) == [200, 429]
        assert self.statuses(visitor, 2, headers=[("X-Key", "b")]) == [200, 429]

    def test_strangers_use_up_nobodys_limit(self, open: Open) -> None:
        visitor = open(auth=True, rate_limits=(self.limit(),))
        assert self.statuses(visitor, 3) == [403] * 3
        assert self.statuses(visitor, 2, headers=[bearer(TOKEN)]) == [200, 429]


class Replicas(Doors):
    def test_each_gets_its_share(self, open: Open, spawn: Spawn) -> None:
        visitor = open(spawn("a"), spawn("b"), spawn("c"))
        found = [visitor.echo()["replica"] for _ in range(12)]
        assert set(found) == {"a", "b", "c"}

    def test_the_least_busy_is_asked(self, open: Open, spawn: Spawn) -> None:
        replicas = [spawn("a"), spawn("b")]
        visitor = open(*replicas)
        with visitor.connect() as slow:
            slow.head("GET", "/wait?key=slow", visitor.host)
            busy = until(
                "it to be under way", lambda: [each.name for each in replicas if each.seen()["came"].get("slow")]
            )
            found = {visitor.echo()["replica"] for _ in range(6)}
        assert {*found, *busy} == {"a", "b"} and len(found) == 1

    def test_one_that_isnt_ready_gets_nothing(self, open: Open, spawn: Spawn) -> None:
        good = spawn("good")
        visitor = open(good.served(), spawn("young").served(ready=False))
        assert {visitor.echo()["replica"] for _ in range(6)} == {"good"}

    def test_one_that_drains_gets_nothing_new(self, open: Open, spawn: Spawn) -> None:
        good = spawn("good")
        visitor = open(good.served(), spawn("old").served(draining=True))
        assert {visitor.echo()["replica"] for _ in range(6)} == {"good"}

    def test_a_killed_replica_costs_no_request(self, open: Open, spawn: Spawn) -> None:
        first, second = spawn("a"), spawn("b")
        visitor = open(first, second)
        assert {visitor.echo()["replica"] for _ in range(4)} == {"a", "b"}
        first.kill()
        assert [visitor.ask("/echo").status for _ in range(20)] == [200] * 20

    def test_nor_does_one_that_is_killed_under_load(self, open: Open, spawn: Spawn) -> None:
        first, second = spawn("a"), spawn("b")
        visitor = open(first, second)
        stop, statuses = threading.Event(), list[int]()

        def calls(_: int) -> None:
            with visitor.connect() as caller:
                while not stop.is_set():
                    caller.head("GET", "/delay?s=0.01", visitor.host)
                    statuses.append(caller.answer().status)

        def more(count: int) -> None:
            wanted = len(statuses) + count
            until("more answers", lambda: len(statuses) >= wanted or any(each.done() for each in running))

        with ThreadPoolExecutor(8) as threads:
            running = [threads.submit(calls, number) for number in range(8)]
            try:
                more(50)
                first.kill()
                more(100)
            finally:
                stop.set()
            for each in running:
                each.result()
        assert len(statuses) >= 150 and set(statuses) == {200}

    @pytest.mark.parametrize("size", [0, 3 * 2**20])
    def test_a_host_that_has_died_costs_no_request(self, open: Open, spawn: Spawn, size: int) -> None:
        good = spawn("good")
        with unaccepting() as port:
            dead = good.served(job_id="dead", port=port, instance_id="another")
            visitor = open(good.served(), dead)
            method, body = ("POST", bytes(size)) if size else ("GET", b"")
            for _ in range(4):
                with visitor.connect() as caller:
                    caller.head(method, "/echo", visitor.host, [("Content-Length", str(size))] if size else [])
                    caller.send(body)
                    assert caller.answer(method).status == 200

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_what_had_no_answer_is_tried_again(self, open: Open, spawn: Spawn, method: str) -> None:
        first, second = spawn("a"), spawn("b")
        visitor = open(first, second)
        body = b"again" if method == "POST" else b""
        # each replica cuts the first request with a key: only the third attempt may succeed, so ask one of them first
        with Caller(("127.0.0.1", second.port)) as caller:
            caller.head("GET", "/once?key=k", "direct")
            assert caller.ended()
        assert visitor.ask("/once?key=k", method, body=body).body in (b"attempt 1", b"attempt 2")

    def test_a_body_that_is_on_its_way_isnt_sent_twice(self, open: Open, spawn: Spawn) -> None:
        first, second = spawn("a"), spawn("b")
        visitor = open(first, second)
        answer = visitor.ask("/cut?how=none", "POST", body=bytes(3 * 2**20))
        assert answer.status == 502
        assert first.seen()["came"].get("cut", 0) + second.seen()["came"].get("cut", 0) == 1

    def test_what_began_to_be_answered_isnt_tried_again(self, open: Open, spawn: Spawn) -> None:
        first, second = spawn("a"), spawn("b")
        visitor = open(first, second)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            visitor.ask("/cut?how=length")
        assert first.seen()["came"].get("cut", 0) + second.seen()["came"].get("cut", 0) == 1

    def test_services_that_come_and_go_break_no_stream(self, door: Door, open: Open, spawn: Spawn) -> None:
        first, second = spawn("a"), spawn("b")
        visitor = open(first, second)
        with visitor.connect() as caller:
            caller.head("GET", "/stream?n=40&gap=0.05", visitor.host)
            response = caller.begin()
            for number in range(10):
                replicas = ((first,), (first, second), (second,))[number % 3]
                door.serve(visitor.service.with_(replicas=tuple(each.served() for each in replicas)))
                assert visitor.ask("/echo").status == 200
            assert list(events(response))[-1] == "[DONE]"


@contextmanager
def unaccepting() -> Iterator[int]:
    """A port of a host that says nothing to whoever connects: no more fit into its queue."""
    with ExitStack() as made:
        listener = made.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        place = listener.getsockname()
        for _ in range(3):
            queued = made.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(place)
        yield place[1]


class Holding(Doors):
    """A request that comes before there is a replica waits for one."""

    def test_it_is_answered_once_there_is_one(self, door: Door, open: Open, spawn: Spawn) -> None:
        young = spawn("young")
        visitor = open(young.served(ready=False))
        with ThreadPoolExecutor(3) as threads:
            waiting = [threads.submit(visitor.ask, "/echo", "POST", body=b"held") for _ in range(3)]
            until("them to wait", lambda: (found := door.traffic(visitor.service)) and found.held == 3)
            door.serve(visitor.service.with_(replicas=(young.served(),)))
            answers: list[Answer] = [each.result() for each in waiting]
        assert [answer.json()["body"] for answer in answers] == ["held"] * 3

    def test_who_waits_is_told_of_at_once(self, door: Door, open: Open) -> None:
        visitor = open(self.young())
        with visitor.connect() as caller:
            caller.head("GET", "/echo", visitor.host)
            found = until("the report", lambda: (found := door.traffic(visitor.service)) and found.held and found)
            assert found.held == 1

        def gone() -> bool:
            found = door.traffic(visitor.service)
            return found is not None and found.held == 0

        until("the one that left to be forgotten", gone)

    @staticmethod
    def young() -> ServedReplica:
        return ServedReplica(job_id="young", instance_id="i1", port=1, address="127.0.0.1", ready=False)

    @needs("off")
    def test_nobody_waits_where_there_are_to_be_none(self, door: Door, open: Open, spawn: Spawn) -> None:
        """One that is still there answers as before."""
        visitor = open(spawn("last"), off=True)
        assert visitor.ask("/echo").status == 200
        door.serve(visitor.service.with_(replicas=()))
        answer = visitor.ask("/echo")
        assert answer.status == 503 and "as configured" in answer.json()["detail"][0]["msg"]

    def test_strangers_neither_wait_nor_wake(self, door: Door, open: Open) -> None:
        visitor = open(self.young(), auth=True)
        assert visitor.ask("/echo").status == 403
        found = door.traffic(visitor.service)
        assert found is None or (found.held == 0 and not any(bucket.requests for bucket in found.buckets))


class Impatience(Doors):
    hold = 1.0

    def test_it_doesnt_wait_for_ever(self, open: Open) -> None:
        answer = open(Holding.young()).ask("/echo")
        assert answer.status == 503
        assert answer.header("retry-after") == "5"
        assert answer.json()["detail"]


class Counting(Doors):
    def test_requests_are_counted(self, door: Door, visitor: Visitor) -> None:
        for _ in range(5):
            visitor.ask("/echo")
        found = door.traffic(visitor.service)
        assert found is not None and sum(bucket.requests for bucket in found.buckets) == 5
        assert found.quiet and found.held == 0

    def test_refused_ones_are_not(self, door: Door, open: Open) -> None:
        visitor = open(auth=True)
        visitor.ask("/echo")
        visitor.ask("/echo", headers=[bearer(TOKEN)])
        found = door.traffic(visitor.service)
        assert found is not None and sum(bucket.requests for bucket in found.buckets) == 1

    def test_an_answer_is_timed_until_its_bodys_first_byte_and_until_its_last(
        self, door: Door, visitor: Visitor, replica: Replica
    ) -> None:
        """Its head tells nothing: servers of models send it before they have read the prompt."""
        late, pace = os.urandom(4).hex(), os.urandom(4).hex()
        with visitor.connect() as caller:
            caller.head("GET", f"/stream?n=2&late={late}&pace={pace}", visitor.host)
            until("the head to be on its way", lambda: replica.seen()["came"].get(late))
            assert self.timed(door, visitor) == (0, 0)
            replica.step(late)
            response = caller.begin()
            assert next(events(response))
            until("the first byte to be counted", lambda: self.timed(door, visitor) == (1, 0))
            replica.step(pace)
            stepwise(response, replica, pace)
        until("the answer to be counted", lambda: self.timed(door, visitor) == (1, 1))
        found = door.traffic(visitor.service)
        assert found is not None and found.first_byte.seconds <= found.whole.seconds
        for kind in ("first_byte", "whole"):
            steps = merged(getattr(step, kind) for step in found.answers)
            assert steps == getattr(found, kind).histogram, "as few answers are in the steps and in total"

    def test_each_answer_of_a_replica_is_timed_and_no_other(self, door: Door, visitor: Visitor, open: Open) -> None:
        visitor.ask("/echo")
        visitor.ask("/echo", "HEAD")
        visitor.ask("/cut?how=none")
        until("both to be counted", lambda: self.timed(door, visitor) == (2, 2))
        with visitor.connect() as caller:
            caller.head("GET", "/wait?key=timed", visitor.host)
            until("the request to be under way", lambda: not self.quiet(door, visitor))
        until("the caller to be missed", lambda: self.quiet(door, visitor))
        assert self.timed(door, visitor) == (2, 2), "nobody knows when it would have been answered"

    @staticmethod
    def quiet(door: Door, visitor: Visitor) -> bool:
        found = door.traffic(visitor.service)
        return found is not None and found.quiet

    @staticmethod
    def timed(door: Door, visitor: Visitor) -> tuple[int, int]:
        """How many first bytes and how many whole answers were counted."""
        found = door.traffic(visitor.service)
        assert found is not None
        return sum(found.first_byte.histogram), sum(found.whole.histogram)

    def test_what_is_under_way_is_seen(self, door: Door, visitor: Visitor) -> None:
        with visitor.connect() as caller:
            caller.head("GET", "/stream?n=1000000&gap=0.05", visitor.host)
            caller.begin().read1(10)
            found = door.traffic(visitor.service)
            assert found is not None and not found.quiet

    def test_a_draining_replica_is_let_go_once_it_has_nothing(self, door: Door, open: Open, spawn: Spawn) -> None:
        old, new = spawn("old"), spawn("new")
        visitor = open(old)

        def let_go() -> tuple[str, ...]:
            found = door.traffic(visitor.service)
            return () if found is None else found.let_go

        with visitor.connect() as caller:
            caller.head("GET", "/stream?n=1000000&gap=0.05", visitor.host)
            caller.begin().read1(10)
            door.serve(visitor.service.with_(replicas=(old.served(draining=True), new.served())))
            assert visitor.echo()["replica"] == "new"
            assert let_go() == ()
        until("it to be let go", lambda: let_go() == (old.id,))

"""A router's list of workers is brought to what the control plane wants, whatever it was and whoever answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.agent.replicas.router import CONCURRENCY, MOST, Router, describe, parse_workers
from tests.harness.examples import many

BASE = "http://127.0.0.1:30000"
URLS = st.sampled_from([f"http://10.0.0.{number}:8000" for number in range(6)])


class Smg:
    """A router's API, and the workers that it knows, in memory."""

    def __init__(self, known: tuple[str, ...] = (), silent: tuple[str, ...] = ()) -> None:
        self.rows = {f"id-{url}": {"id": f"id-{url}", "url": url, "status": "ready"} for url in known}
        self.silent, self.info = silent, dict[str, Any]()
        self.down, self.calls, self.under_way, self.most = False, list[tuple[str, str]](), 0, 0
        self.log: list[str] = []

    async def __call__(self, method: str, url: str, body: Any, most: int) -> tuple[int, bytes]:
        self.calls.append((method, url))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        try:
            status, found = self._own(method, url.removeprefix(BASE), body) if url.startswith(BASE) else self._of(url)
            answer = found if isinstance(found, bytes) else json.dumps(found).encode()
            if len(answer) > most:
                raise ValueError("too large")
            return status, answer
        finally:
            self.under_way -= 1

    async def grpc(self, url: str, name: str, most: int) -> bytes | None:
        raise ConnectionRefusedError("refused")

    def _own(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if self.down:
            raise ConnectionRefusedError("refused")
        if (method, path) == ("GET", "/workers"):
            return 200, {"workers": list(self.rows.values()), "total": len(self.rows)}
        if (method, path) == ("POST", "/workers"):
            self.rows[f"id-{body['url']}"] = {"id": f"id-{body['url']}", "status": "pending", **body}
            return 202, {}
        found = self.rows.get(path.removeprefix("/workers/").replace("%3A", ":").replace("%2F", "/"))
        if method != "DELETE" or found is None:
            return 404, {}
        found["status"] = "draining"
        return 202, {}

    def _of(self, url: str) -> tuple[int, Any]:
        worker, _, path = url.rpartition("/")
        if worker in self.silent:
            raise ConnectionRefusedError("refused")
        return (200, self.info[worker]) if path == "server_info" and worker in self.info else (404, {})

    def gone(self) -> None:
        """Those that were leaving have left."""
        self.rows = {key: row for key, row in self.rows.items() if row["status"] != "draining"}

    @property
    def urls(self) -> set[str]:
        return {row["url"] for row in self.rows.values() if row["status"] != "draining"}


def reconcile(smg: Smg, *wanted: str, times: int = 1) -> bool:
    router, done = Router(BASE, smg, smg.grpc, smg.log.append), False
    for _ in range(times):
        done = asyncio.run(router.reconcile(wanted))
    return done


@given(st.sets(URLS), st.sets(URLS), st.sets(URLS))
@settings(max_examples=many(200), deadline=None)
@pytest.mark.slow
def test_it_comes_to_what_is_wanted(known: set[str], wanted: set[str], silent: set[str]) -> None:
    smg = Smg(tuple(known), tuple(silent))
    done = reconcile(smg, *wanted)
    assert smg.urls == (known & wanted) | (wanted - silent)
    assert done == (known == wanted)
    requests_before = len(smg.calls)
    smg.gone()
    assert reconcile(smg, *wanted) == (wanted - known <= wanted - silent)
    assert all(method == "GET" for method, _ in smg.calls[requests_before:]), "nothing is left to change"


def test_a_worker_says_what_it_is() -> None:
    smg = Smg()
    smg.info = {
        "http://a:1": {"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 8998},
        "http://b:1": {"disaggregation_mode": "decode", "disaggregation_bootstrap_port": 8998},
        "http://c:1": {"disaggregation_mode": "null"},
    }
    assert not reconcile(smg, "http://a:1/", "http://b:1", "http://c:1", "http://d:1")
    kinds = {row["url"]: (row["worker_type"], row.get("bootstrap_port")) for row in smg.rows.values()}
    assert kinds == {
        "http://a:1": ("prefill", 8998),
        "http://b:1": ("decode", None),
        "http://c:1": ("regular", None),
        "http://d:1": ("regular", None),
    }


def test_a_router_that_is_down_is_told_later_and_said_once() -> None:
    smg = Smg()
    smg.down = True
    assert not reconcile(smg, "http://a:1", times=3)
    assert smg.log == ["the router's list of workers can't be updated: refused"]
    smg.down = False
    assert not reconcile(smg, "http://a:1")
    assert reconcile(smg, "http://a:1") and smg.log[-1] == "the router's workers: 1 wanted, 1 added, 0 removed"


def test_it_is_clear_once_the_last_requests_of_those_that_leave_are_over() -> None:
    smg = Smg(("http://a:1", "http://b:1"))
    router = Router(BASE, smg, smg.grpc, smg.log.append)
    asyncio.run(router.reconcile(["http://a:1"]))
    assert not router.clear, "it had one more"
    asyncio.run(router.reconcile(["http://a:1"]))
    assert not router.clear, "which still drains"
    smg.gone()
    asyncio.run(router.reconcile(["http://a:1", "http://c:1"]))
    assert router.clear, "whom it lacks doesn't matter"
    smg.down = True
    asyncio.run(router.reconcile(["http://a:1"]))
    assert not router.clear


def test_those_that_leave_are_left_alone() -> None:
    smg = Smg(("http://a:1",))
    reconcile(smg, times=3)
    assert [each for each in smg.calls if each[0] == "DELETE"] == [("DELETE", f"{BASE}/workers/id-http%3A%2F%2Fa%3A1")]


def test_many_workers_are_asked_a_few_at_a_time() -> None:
    smg = Smg()
    reconcile(smg, *(f"http://w{number}:1" for number in range(50)))
    assert len(smg.urls) == 50 and smg.most <= CONCURRENCY


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"workers": 3}', b'{"workers": [3]}', b'{"workers": [{"id": 3, "url": "u"}]}',
        b'{"workers": [{"id": "i"}]}', json.dumps({"workers": [{}] * (MOST + 1)}).encode(),
    ],
)  # fmt: skip
def test_what_isnt_a_list_of_workers_changes_nothing(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_workers(body)

    async def odd(method: str, url: str, given: Any, most: int) -> tuple[int, bytes]:
        assert method == "GET"
        return 200, body

    log: list[str] = []
    assert not asyncio.run(Router(BASE, odd, Smg().grpc, log.append).reconcile(["http://a:1"]))
    assert len(log) == 1


@pytest.mark.parametrize("status", [199, 300, 503])
def test_a_list_of_workers_that_comes_with_a_refusal_is_none(status: int) -> None:
    async def refuses(method: str, url: str, given: Any, most: int) -> tuple[int, bytes]:
        assert method == "GET"
        return status, b'{"workers": []}'

    log: list[str] = []
    assert not asyncio.run(Router(BASE, refuses, Smg().grpc, log.append).reconcile(["http://a:1"]))
    assert log == [f"the router's list of workers can't be updated: it answered GET /workers with {status}"]


def test_a_worker_that_says_nonsense_waits() -> None:
    smg = Smg()
    smg.info = {"http://a:1": [], "http://b:1": b"<html>", "http://c:1": {"x": "y" * 300_000}}
    reconcile(smg, "http://a:1", "http://b:1", "http://c:1")
    assert smg.urls == set()
    assert describe("http://a:1", {"disaggregation_mode": 3})["worker_type"] == "regular"

"""The workers of a service's router: keeps its program's list of replicas up to date.

The control plane says where the replicas of the service's other groups are; the program that routes to them (smg, once
SGLang's router) has an HTTP API on this machine for its list of workers. Here the two are brought together: what is
missing is added, what isn't wanted is removed, and nothing else is touched. A worker is asked first what it is, because
only it knows whether it was started to prefill, to decode, or for both. One that doesn't speak HTTP is asked by gRPC,
and the router then reaches it by that.

A worker that doesn't answer yet is left for the next time, and so is everything if the router doesn't. One that is
removed stays on the router's list until its requests are over, so one that is off the list may be stopped.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Awaitable, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple
from urllib.parse import quote

from . import grpc_info

EVERY = 5.0  # seconds
LIST_BYTES, INFO_BYTES, ACK_BYTES = 2 << 20, 256 << 10, 64 << 10
MOST = 8192  # workers
AT_ONCE = 8  # of them that are asked what they are
ROLES = ("prefill", "decode")
INFO = ("/server_info", "/get_server_info")  # SGLang's name for it, and its earlier one

GRPC_INFO = ((grpc_info.VLLM, grpc_info.of_vllm), (grpc_info.SGLANG, grpc_info.of_sglang))

# method, URL, JSON to send, and how many bytes the answer may have; raises OSError or ValueError
Call = Callable[[str, str, Optional[Dict[str, Any]], int], Awaitable[Tuple[int, bytes]]]
# URL, name of the call, and how many bytes the answer may have; None: no such call. Raises OSError or ValueError
Grpc = Callable[[str, str, int], Awaitable[Optional[bytes]]]


class Worker(NamedTuple):
    id: str
    place: str
    leaving: bool


def place(url: str) -> str:
    """The host and port, however it is spoken to."""
    return url.rstrip("/").rpartition("://")[2]


def listed(body: bytes) -> List[Worker]:
    """What a router says of its workers. Raises ValueError."""
    found = json.loads(body)
    rows = found.get("workers") if isinstance(found, dict) else None
    if not isinstance(rows, list) or len(rows) > MOST:
        raise ValueError("the router's list of workers isn't one")
    workers = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not isinstance(row.get("url"), str):
            raise ValueError("the router's list has a worker without `id` or `url`")
        workers.append(Worker(row["id"], place(row["url"]), row.get("status") == "draining"))
    return workers


def described(url: str, said: Any) -> Dict[str, Any]:
    """A worker as the router is to know it, from what it says of itself. Raises ValueError."""
    if not isinstance(said, dict):
        raise ValueError("the worker's description of itself isn't one")
    role, port = said.get("disaggregation_mode"), said.get("disaggregation_bootstrap_port")
    worker: Dict[str, Any] = {"url": url, "worker_type": role if role in ROLES else "regular"}
    if role == "prefill" and isinstance(port, int):
        worker["bootstrap_port"] = port
    return worker


class Router:
    """One router, at `base`."""

    def __init__(self, base: str, call: Call, grpc: Grpc, log: Callable[[str], None]) -> None:
        self._base, self._call, self._grpc, self._log = base, call, grpc, log
        self._said = ""
        self.clear = False  # when it was last asked, it had no worker that isn't wanted, not even for its last requests

    async def reconcile(self, wanted: Iterable[str]) -> bool:
        """Once. Has the router all that is wanted, and nothing else?"""
        urls = [url.rstrip("/") for url in wanted][:MOST]
        self.clear = False
        try:
            there = listed(await self._ask("GET", "/workers", None, LIST_BYTES))
            places = set(map(place, urls))
            strangers = [worker for worker in there if worker.place not in places]
            self.clear = not strangers
            gone = [worker for worker in strangers if not worker.leaving]
            for worker in gone:
                await self._ask("DELETE", "/workers/" + quote(worker.id, safe=""), None, ACK_BYTES, good=(404,))
            known = {worker.place for worker in there}
            missing = [url for url in urls if place(url) not in known]
            added = await self._add_all(missing)
        except (OSError, ValueError, asyncio.TimeoutError) as problem:
            self._say("the router's list of workers can't be updated: %s" % problem)
            return False
        if added < len(missing):
            names = ", ".join(missing[:3])
            self._say("%d of the router's workers can't be asked what they are: %s" % (len(missing) - added, names))
        elif gone or added:
            self._say("the router's workers: %d wanted, %d added, %d removed" % (len(urls), added, len(gone)))
        return not gone and not missing

    async def _add_all(self, urls: List[str]) -> int:
        turns = asyncio.Semaphore(AT_ONCE)

        async def add(url: str) -> bool:
            async with turns:
                worker = await self._description(url)
                if worker is not None:
                    await self._ask("POST", "/workers", worker, ACK_BYTES, good=(409,))
                return worker is not None

        return sum(await asyncio.gather(*(add(url) for url in urls)))

    async def _description(self, url: str) -> Optional[Dict[str, Any]]:
        """None: it doesn't say yet. A model server that has no word for it does both."""
        try:
            return await self._by_http(url)
        except (ValueError, ConnectionResetError, asyncio.TimeoutError):  # it may speak another language
            pass
        except OSError:
            return None
        try:
            return await self._by_grpc("grpc://" + place(url))
        except (OSError, ValueError, asyncio.TimeoutError):
            return None

    async def _by_http(self, url: str) -> Optional[Dict[str, Any]]:
        for path in INFO:
            status, body = await self._call("GET", url + path, None, INFO_BYTES)
            if status == 200:
                return described(url, json.loads(body))
            if status not in (404, 405):
                return None
        return described(url, {})

    async def _by_grpc(self, url: str) -> Dict[str, Any]:
        for name, read in GRPC_INFO:
            message = await self._grpc(url, name, INFO_BYTES)
            if message is not None:
                return described(url, read(message))
        return described(url, {})

    async def _ask(
        self, method: str, path: str, body: Optional[Dict[str, Any]], most: int, good: Tuple[int, ...] = ()
    ) -> bytes:
        status, answer = await self._call(method, self._base + path, body, most)
        if not 200 <= status < 300 and status not in good:
            raise ValueError("it answered %s %s with %d" % (method, path, status))
        return answer

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._log(text)

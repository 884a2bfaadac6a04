"""The list of workers of a service's router, kept up to date.

The control plane sends the addresses of the replicas in the service's other groups; the program that routes to them
(smg, formerly SGLang's router) has an HTTP API on this machine for its list of workers. This module adds missing
workers and removes others. Before a worker is added it is queried for its role, because only the worker knows whether
it was started to prefill, to decode, or for both. One that doesn't speak HTTP is queried by gRPC, which the router then
uses, too.

A worker that doesn't answer yet is retried next time, and so is everything if the router doesn't answer. A removed
worker stays on the router's list until its requests are over, so one that isn't listed may be stopped.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Awaitable, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple
from urllib.parse import quote

from . import grpc_info

RECONCILE_EVERY = 5.0  # seconds
LIST_BYTES, INFO_BYTES, ACK_BYTES = 2 << 20, 256 << 10, 64 << 10
MOST = 8192  # workers
CONCURRENCY = 8  # workers that are queried at once
ROLES = ("prefill", "decode")
INFO = ("/server_info", "/get_server_info")  # SGLang's path, and its former one

GRPC_INFO = ((grpc_info.VLLM, grpc_info.of_vllm), (grpc_info.SGLANG, grpc_info.of_sglang))

# method, URL, JSON to send, and the most bytes of the response; raises OSError or ValueError
Call = Callable[[str, str, Optional[Dict[str, Any]], int], Awaitable[Tuple[int, bytes]]]
# URL, name of the call, and the most bytes of the response; None: no such call. Raises OSError or ValueError
Grpc = Callable[[str, str, int], Awaitable[Optional[bytes]]]


class Worker(NamedTuple):
    id: str
    place: str
    leaving: bool


def place(url: str) -> str:
    """The host and port of a URL, without the protocol."""
    return url.rstrip("/").rpartition("://")[2]


def parse_workers(body: bytes) -> List[Worker]:
    """The workers in a router's response. Raises ValueError."""
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


def describe(url: str, info: Any) -> Dict[str, Any]:
    """A worker's description for the router, from the worker's own information. Raises ValueError."""
    if not isinstance(info, dict):
        raise ValueError("the worker's description of itself isn't one")
    role, port = info.get("disaggregation_mode"), info.get("disaggregation_bootstrap_port")
    worker: Dict[str, Any] = {"url": url, "worker_type": role if role in ROLES else "regular"}
    if role == "prefill" and isinstance(port, int):
        worker["bootstrap_port"] = port
    return worker


class Router:
    """A router's API at `base`."""

    def __init__(self, base: str, call: Call, grpc: Grpc, log: Callable[[str], None]) -> None:
        self._base, self._call, self._grpc, self._log = base, call, grpc, log
        self._logged = ""  # the last message
        self.clear = False  # as of the last query, it has no unwanted worker, not even for its last requests

    async def reconcile(self, wanted: Iterable[str]) -> bool:
        """Update the list once. Returns whether it was right already."""
        urls = [url.rstrip("/") for url in wanted][:MOST]
        self.clear = False
        try:
            workers = parse_workers(await self._request("GET", "/workers", None, LIST_BYTES))
            places = set(map(place, urls))
            unwanted = [worker for worker in workers if worker.place not in places]
            self.clear = not unwanted
            removed = [worker for worker in unwanted if not worker.leaving]
            for worker in removed:
                await self._request("DELETE", "/workers/" + quote(worker.id, safe=""), None, ACK_BYTES, good=(404,))
            listed = {worker.place for worker in workers}
            missing = [url for url in urls if place(url) not in listed]
            added = await self._add(missing)
        except (OSError, ValueError, asyncio.TimeoutError) as problem:
            self._log_change("the router's list of workers can't be updated: %s" % problem)
            return False
        if added < len(missing):
            names = ", ".join(missing[:3])
            self._log_change(
                "%d of the router's workers can't be queried for their role: %s" % (len(missing) - added, names)
            )
        elif removed or added:
            self._log_change("the router's workers: %d wanted, %d added, %d removed" % (len(urls), added, len(removed)))
        return not removed and not missing

    async def _add(self, urls: List[str]) -> int:
        turns = asyncio.Semaphore(CONCURRENCY)

        async def add(url: str) -> bool:
            async with turns:
                worker = await self._description(url)
                if worker is not None:
                    await self._request("POST", "/workers", worker, ACK_BYTES, good=(409,))
                return worker is not None

        return sum(await asyncio.gather(*(add(url) for url in urls)))

    async def _description(self, url: str) -> Optional[Dict[str, Any]]:
        """A worker's description; None if it doesn't answer yet. One without information is for prefill and decode."""
        try:
            return await self._by_http(url)
        except (ValueError, ConnectionResetError, asyncio.TimeoutError):  # it may use another protocol
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
                return describe(url, json.loads(body))
            if status not in (404, 405):
                return None
        return describe(url, {})

    async def _by_grpc(self, url: str) -> Dict[str, Any]:
        for name, read in GRPC_INFO:
            message = await self._grpc(url, name, INFO_BYTES)
            if message is not None:
                return describe(url, read(message))
        return describe(url, {})

    async def _request(
        self, method: str, path: str, body: Optional[Dict[str, Any]], most: int, good: Tuple[int, ...] = ()
    ) -> bytes:
        status, answer = await self._call(method, self._base + path, body, most)
        if not 200 <= status < 300 and status not in good:
            raise ValueError("it answered %s %s with %d" % (method, path, status))
        return answer

    def _log_change(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            self._log(text)

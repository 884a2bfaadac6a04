"""Cirrus, a cloud that doesn't exist: instances in two regions, over JSON and HTTP, by calls signed with a key.

It has no token for a repeated creation and lists with a lag, as most small clouds do; it repeats what was wrong in a
request, and a creation may be found short of capacity later.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import orjson

from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall
from chalicelib.domain.instants import MINUTE, SECOND, Micros

BASE = "https://api.cirrus.test/v1"
KEY, SECRET = "key-1", "cirrus-secret-0123456789"
REGIONS = ("east", "west")
BOOT, ENDING, NOTICE = 40 * SECOND, 20 * SECOND, 2 * MINUTE
TYPES: tuple[Mapping[str, Any], ...] = (
    {"id": "c4", "gpu": "", "gpus": 0, "vcpus": 4, "memory_gib": 16, "cents": 20, "spot_cents": 6},
    {"id": "l4x1", "gpu": "NVIDIA L4", "gpus": 1, "vcpus": 8, "memory_gib": 32, "cents": 80, "spot_cents": 30},
    {"id": "h100x8", "gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "vcpus": 192, "memory_gib": 2048, "cents": 2400},
    {"id": "slice", "gpu": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "gpus": 1, "vcpus": 2, "memory_gib": 8, "cents": 15},
)
Body = dict[str, Any]


def signature(secret: str, call: RestCall) -> str:
    text = "\n".join((call.method, call.path, urlencode(sorted(call.query)), call.body.decode()))
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


@dataclass
class RestFault:
    """Calls that begin so are answered so, whatever they ask."""

    call: str  # method and path from the region on: `GET instances`; empty: any
    status: int
    code: str
    when: str = "before"  # or `after` it was carried out, when the answer is lost
    times: int = 1
    further: bool = False  # of a list, a page that isn't the first
    region: str = ""


class Refuses(Exception):
    def __init__(self, status: int, code: str, message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class Cirrus:
    def __init__(self, now: Callable[[], Micros]) -> None:
        self.now, self.instances, self.faults = now, dict[str, Body](), list[RestFault]()
        self.lag, self.page, self.quota = 0, 100, 1000
        self.full, self.short = set[str](), set[str]()  # types without capacity: that say so at once, and that don't
        self.calls: list[str] = []
        self._lock = threading.Lock()  # regions are asked at the same time

    def send(self, call: RestCall, deadline: float) -> RestAnswer:
        with self._lock:
            return self._sent(call)

    def _sent(self, call: RestCall) -> RestAnswer:
        path = call.path.removeprefix("/v1/")
        region, _, rest = path.partition("/") if path.partition("/")[0] in REGIONS else ("", "", path)
        self.calls.append(f"{call.method} {rest}")
        query = dict(call.query)
        fault = next((each for each in self.faults if self._hits(each, call.method, region, rest, query)), None)
        if fault is not None:
            self.faults.remove(fault) if fault.times == 1 else setattr(fault, "times", fault.times - 1)
            if fault.when == "after":
                self._answer(call, region, rest, query)
                raise NoAnswer("the connection was closed")
            return self._error(Refuses(fault.status, fault.code, f"by chance: {call.body.decode()}"))
        try:
            return self._answer(call, region, rest, query)
        except Refuses as error:
            return self._error(error)

    def _hits(self, fault: RestFault, method: str, region: str, rest: str, query: Mapping[str, str]) -> bool:
        wanted = f"{method} {rest}".startswith(fault.call) and fault.region in ("", region)
        return wanted and (not fault.further or bool(query.get("after")))

    @staticmethod
    def _error(error: Refuses) -> RestAnswer:
        body = {"error": {"code": error.code, "message": error.message}}
        return RestAnswer(error.status, {}, orjson.dumps(body))

    def _answer(self, call: RestCall, region: str, rest: str, query: Mapping[str, str]) -> RestAnswer:
        if call.headers.get("Authorization") != f"Cirrus {KEY}:{signature(SECRET, call)}":
            raise Refuses(401, "invalid-key")
        match call.method, rest.split("/"):
            case "GET", ["account"]:
                found: Any = {"id": "acme"}
            case "GET", ["regions"]:
                found = list(REGIONS)
            case "GET", ["types"]:
                found = self._types(int(query.get("from", "0")))
            case "GET", ["instances"]:
                found = self._list(region, query)
            case "POST", ["instances"]:
                found = self._create(region, orjson.loads(call.body))
            case "DELETE", ["instances", id]:
                self._delete(region, id)
                return RestAnswer(204)
            case _:
                raise Refuses(404, "not-found", f"no {call.method} {rest}")
        return RestAnswer(200, {}, orjson.dumps(found))

    @staticmethod
    def _types(start: int) -> Body:
        more = f"{BASE}/types?from={start + 2}" if start + 2 < len(TYPES) else None
        return {"items": TYPES[start : start + 2], "next": more}

    def _list(self, region: str, query: Mapping[str, str]) -> Body:
        key, _, value = query.get("tag", "").partition(":")
        shown = [each for each in self.alive(region) if each["at"] + self.lag <= self.now()]
        shown = [each for each in shown if not key or each["tags"].get(key) == value]
        start = int(query.get("after", "0"))
        more = str(start + self.page) if start + self.page < len(shown) else ""
        return {"instances": [self._shown(each) for each in shown[start : start + self.page]], "next_page": more}

    def _create(self, region: str, body: Body) -> Body:
        if body["type"] not in {each["id"] for each in TYPES}:
            raise Refuses(422, "invalid", f"no such type: {body}")
        if body["type"] in self.full:
            raise Refuses(400, "no-capacity", f"no {body['type']} is left")
        if len(self.alive()) >= self.quota:
            raise Refuses(400, "quota-exceeded", f"the account may have {self.quota} instances")
        number = len(self.instances) + 1
        made = {**body, "id": f"vm-{number:04}", "ip": f"10.0.0.{number}", "region": region, "at": self.now()}
        self.instances[made["id"]] = {**made, "short": body["type"] in self.short, "ends": None, "taken": None}
        return self._shown(self.instances[made["id"]])

    def _delete(self, region: str, id: str) -> None:
        found = self.instances.get(id)
        if found is None or found["region"] != region or found not in self.alive():
            raise Refuses(404, "not-found", f"no instance {id}")
        if found["ends"] is None:
            found["ends"] = self.now() + ENDING

    def alive(self, region: str = "") -> list[Body]:
        there = (each for each in self.instances.values() if region in ("", each["region"]))
        return [each for each in there if all(end is None or end > self.now() for end in (each["ends"], each["taken"]))]

    def _shown(self, body: Body) -> Body:
        up = body["at"] + BOOT <= self.now()
        status = "ending" if body["ends"] else "preempted" if body["taken"] else "active" if up else "booting"
        if body["short"] and self.now() > body["at"]:
            status = "no-capacity"
        created = datetime.fromtimestamp(body["at"] // SECOND, UTC).isoformat()
        shown = {key: body[key] for key in ("id", "name", "type", "tags", "ip")}
        return {**shown, "status": status, "created_at": created}

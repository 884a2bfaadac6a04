"""Vast.ai: the offers of six hosts, what is rented of them, and what somebody else takes away.

`api.json` is made by `extract` from the document that it names; what that lacks is from Vast.ai's pages, from what its
own client sends and from reports of those who use it (`_api`, and the rules below): paths end in a slash, environments
are objects, pages need an order; an endpoint called too soon answers in plain text; the old list is a 410; a wrong key
may be a 404; an offer's id is another after some minutes; who is outbid, or bids too little, has an instance that is
stopped and billed.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Answer, Call, Rate, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers

KEY = "0123456789abcdef0123456789abcdef0123456789abcdef"
CREDIT = "credit"  # the counter of what all instances cost in an hour, in ten thousandths of a dollar
DAY = 24 * 3600  # seconds
HTML = {"content-type": "text/html"}
ARGUMENTS, ENVIRONMENT, ENV_KEY, PORTS, LABEL, IMAGE = 4096, 32_768, 256, 64, 256, 1024
# The least time between two calls of each endpoint.
LIMITS: Mapping[str, Micros] = {
    "searchOffers": 6 * SECOND,
    "createInstance": 4 * SECOND + SECOND // 2,
    "showInstance": 2 * SECOND,
    "showInstances": SECOND,
    "destroyInstance": 3 * SECOND,
}


@dataclass(frozen=True)
class Host:
    """One machine. Prices are of one GPU, dollars an hour."""

    gpu: str
    memory: int  # MB of a GPU
    gpus: int
    cores: int
    ram: int  # MB
    price: float
    bid: float  # the least
    place: str
    score: float = 100.0
    reliability: float = 0.99
    verified: bool = True
    datacenter: bool = False
    cuda: float = 12.8
    days: float = 30.0
    arch: str = "amd64"
    down: float = 900.0
    disk: float = 1000.0
    storage: float = 0.15  # a GB a month
    vendor: str = "nvidia"
    capability: int = 890


HOSTS: Mapping[int, Host] = {
    101: Host("RTX 4090", 24564, 4, 64, 257_000, 0.4, 0.2, "California, US", score=300),
    102: Host("RTX 4090", 24564, 1, 16, 64_000, 0.3, 0.15, "Sweden, SE", score=90, reliability=0.93),
    103: Host("H100 SXM", 81559, 8, 192, 2_064_000, 2.2, 1.4, "Texas, US", score=200, datacenter=True, capability=900),
    104: Host("RTX 3090", 24576, 2, 32, 128_000, 0.15, 0.08, "Quebec, CA", score=80, reliability=0.8, capability=860),
    105: Host("RTX 3090", 24576, 2, 32, 128_000, 0.1, 0.05, "Poland, PL", score=70, verified=False, capability=860),
    106: Host("GH200 SXM", 97_871, 1, 72, 480_000, 1.9, 1.1, "Virginia, US", score=60, arch="arm64", capability=900),
}
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda value, wanted: value == wanted,
    "neq": lambda value, wanted: value != wanted,
    "gt": lambda value, wanted: value > wanted,
    "gte": lambda value, wanted: value >= wanted,
    "lt": lambda value, wanted: value < wanted,
    "lte": lambda value, wanted: value <= wanted,
    "in": lambda value, wanted: value in wanted,
    "notin": lambda value, wanted: value not in wanted,
}


def stock(machine: int) -> str:
    return f"GPUs of {machine}"


def limits() -> dict[str, Rate]:
    return {name: Rate(1, least) for name, least in LIMITS.items()}


def _api() -> Api:
    """With what the live API has and the document doesn't."""
    document = json.loads(Path(__file__).with_name("api.json").read_text(encoding="utf-8"))
    operations = document["operations"]
    for each in (
        parameter for one in operations.values() for parameter in one["parameters"] if parameter["in"] == "path"
    ):
        each["schema"] = {"pattern": "^[0-9]+$"}  # as text, which a path is
    body = operations["createInstance"]["body"]["properties"]
    body.update(env={"additionalProperties": {"type": "string"}}, client_id={"const": "me"})
    operations["searchOffers"]["body"]["properties"]["type"]["enum"].append("on-demand")
    operations["destroyInstance"]["body"] = {"type": "object", "additionalProperties": False}
    answer = operations["createInstance"]["responses"]["200"]["properties"]
    answer.update(error={"type": "string"}, msg={"type": "string"})
    shown = operations["showInstance"]["responses"]["200"]["properties"]
    shown["instances"] = {"anyOf": [shown["instances"], {"type": "null"}]}
    return Api(document)


class Vast(Fake):
    api = _api()

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.start, self.run, self.end = 5 * SECOND, 20 * SECOND, 10 * SECOND
        self.like = 1  # machines like each of them
        self.listed_for = 10 * MINUTE  # until an offer has another id
        self.wrong_key = 401  # the status; it may also be 403 and 404
        self.gone = 410  # the status for an offer that is gone; it may also be 404
        self.keeps_low_bids = False  # though it was asked not to
        self.raised: dict[int, float] = {}  # what others bid by now for a GPU of a machine
        self.broken: set[int] = set()  # machines that can't start what is rented next

    def answer(self, request: Request) -> Answer:
        path, mark, query = request.target.partition("?")
        if not path.endswith("/"):
            return Answer(308, "<html>Redirecting…</html>", {**HTML, "location": f"{path}/"})
        if (request.method, path) == ("GET", "/api/v0/instances/"):
            return _problem(410, "deprecated_endpoint", "use /api/v1/instances/").answer
        return super().answer(Request(request.method, f"{path[:-1]}{mark}{query}", request.headers, request.body))

    def authenticate(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise _problem(self.wrong_key, "auth_error", "Invalid user key")

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            return Refusal(429, "API requests too frequent", {"content-type": "text/plain"})
        if why == "no-route":
            return Refusal(404, "<html><h1>Not Found</h1></html>", HTML)
        return _problem(400, "invalid_args", message)

    # --- offers -------------------------------------------------------------------------------------------------------

    @answers("searchOffers")
    def _search(self, call: Call) -> Any:
        wanted = dict(call.body)
        is_bid, limit = wanted.pop("type", "ondemand") == "bid", wanted.pop("limit", 64)
        order, disk = wanted.pop("order", [["score", "desc"]]), wanted.pop("allocated_storage", 8)
        filters = {"verified": {"eq": True}, "rentable": {"eq": True}, "rented": {"eq": False}, **wanted}
        rows = [row for row in self._rows(is_bid, disk) if all(_meets(row, *each) for each in filters.items())]
        for name, way in reversed(order):
            rows.sort(key=lambda row: row[name], reverse=way == "desc")
        return {"offers": [_shown(row) for row in rows[:limit]]}

    def _rows(self, is_bid: bool, disk: float) -> Iterator[dict[str, Any]]:
        for machine, host in HOSTS.items():
            for count in (1, 2, 4, 8):
                if count <= host.gpus and host.gpus % count == 0:
                    yield self._row(machine, host, count, is_bid, disk)

    def _row(self, machine: int, host: Host, count: int, is_bid: bool, disk: float) -> dict[str, Any]:
        """What is shown of an offer, and, in capitals, what only a search knows."""
        share, storage = count / host.gpus, disk * host.storage / 720
        rent, bid = round(host.price * count, 4), round(self._least(machine) * count, 4)
        return {
            "id": self._ask(machine, count),
            "machine_id": machine,
            "host_id": machine + 1000,
            "gpu_name": host.gpu,
            "gpu_arch": host.vendor,
            "num_gpus": count,
            "gpu_frac": share,
            "gpu_ram": host.memory,
            "gpu_total_ram": host.memory * count,
            "compute_cap": host.capability,
            "cpu_arch": host.arch,
            "cpu_cores": host.cores,
            "cpu_cores_effective": host.cores * share,
            "cpu_ram": host.ram,
            "cuda_max_good": host.cuda,
            "inet_down": host.down,
            "disk_space": host.disk,
            "storage_cost": host.storage,
            "dph_base": rent,
            "dph_total": round((bid if is_bid else rent) + storage, 6),
            "min_bid": bid,
            "is_bid": is_bid,
            "geolocation": host.place,
            "duration": host.days * DAY,
            "end_date": self.now() / SECOND + host.days * DAY,
            "score": host.score,
            "reliability2": host.reliability,
            "verification": "verified" if host.verified else "unverified",
            "hosting_type": int(host.datacenter),
            "external": False,
            "rentable": True,
            "rented": self._used(machine, on_demand=True) + count > self._room(machine),
            "VERIFIED": host.verified,
            "DATACENTER": host.datacenter,
            "RELIABILITY": host.reliability,
            "GEOLOCATION": host.place.rpartition(" ")[2],
        }

    def _ask(self, machine: int, count: int) -> int:
        return (machine * 10 + count) * 1000 + self.now() // self.listed_for % 1000

    def _least(self, machine: int) -> float:
        return self.raised.get(machine, HOSTS[machine].bid)

    def _room(self, machine: int) -> int:
        return self.script.limits.get(stock(machine), HOSTS[machine].gpus * self.like)

    def _used(self, machine: int, *, on_demand: bool = False) -> int:
        running = (
            each for each in self.books.existing("vm") if each.facts["machine"] == machine and not self._stopped(each)
        )
        return sum(each.facts["gpus"] for each in running if not (on_demand and each.facts["bid"]))

    # --- instances ----------------------------------------------------------------------------------------------------

    @answers("createInstance")
    def _create(self, call: Call) -> Any:
        body, ask = call.body, int(call.path["id"])
        machine, count = divmod(ask // 1000, 10)
        if machine not in HOSTS or ask != self._ask(machine, count):
            raise self._taken(ask)
        host = HOSTS[machine]
        self._check_body(body, host)
        bid = body.get("price")
        if self._used(machine, on_demand=bid is None) + count > self._room(machine):
            raise self._taken(ask)
        hourly = round((bid or host.price * count) * 10_000)
        if self.books.over({CREDIT: hourly}, self.script.limits):
            return {"success": False, "error": "insufficient_credit", "msg": "Your balance is too low for this offer."}
        low = bid is not None and bid < self._least(machine) * count - 1e-9
        if low and body.get("cancel_unavail") and not self.keeps_low_bids:
            raise _problem(400, "invalid_price", "the bid is below the least")
        steps = [(0, "setup"), (self.start, "loading"), (self.run, "running")]
        made = self.books.add(
            "vm",
            *(steps if not low else [(0, "stopped")]),
            lag=self.script.lag,
            counts={CREDIT: hourly, stock(machine): count},
            request=body,
            machine=machine,
            gpus=count,
            bid=bid,
            wish="running",
            message="",
            ends=self.now() / SECOND + host.days * DAY,
        )
        made.facts["number"] = 20_000_000 + made.number
        made.id = str(made.facts["number"])
        if machine in self.broken:
            made.goes(self.now(), (0, "setup"), (self.start, "created"))
            made.facts["message"] = (
                "Error response from daemon: OCI runtime create failed: nvidia-container-cli: no GPU"
            )
        if bid is None:
            self._make_room(machine)
        return {"success": not low, "new_contract": made.facts["number"]}

    def _check_body(self, body: Any, host: Host) -> None:
        env = body.get("env", {})
        ports = [name for name in env if re.match(r"-p \d+:\d+", name)]
        texts = json.dumps([body.get("args", []), body.get("args_str", ""), body.get("onstart", "")])
        lengths = {
            "args": (len(texts), ARGUMENTS),  # in the longest form that may be counted
            "env": (sum(len(name) + len(value) for name, value in env.items()), ENVIRONMENT),
            "a name in env": (max(map(len, env), default=0), ENV_KEY),
            "ports": (len(ports), PORTS),
            "label": (len(body.get("label", "")), LABEL),
            "image": (len(body["image"]), IMAGE),
        }
        for name, (length, most) in lengths.items():
            if length > most:
                raise _problem(400, "invalid_args", f"{name} must be at most {most}")
        if not 8 <= body.get("disk", 10) <= host.disk:
            raise _problem(400, "invalid_args", "disk must be from 8 to what the host has")
        if "image_login" in body:
            flags = shlex.split(body["image_login"])
            if len(flags) != 5 or flags[::2][:2] != ["-u", "-p"]:
                raise _problem(400, "invalid_args", "image_login must be -u USER -p PASSWORD REGISTRY")

    def _taken(self, ask: int) -> Refusal:
        body = {"success": False, "error": "no_such_ask", "msg": f"error {self.gone}/3603: no_such_ask", "ask_id": ask}
        return Refusal(self.gone, body)

    def _stopped(self, made: Resource) -> bool:
        return made.facts["wish"] == "stopped" or made.state(self.now()) == "stopped"

    def _make_room(self, machine: int) -> None:
        """Who rents on demand comes before all who bid, and who bids more before who bids less."""
        bids = sorted(
            (each for each in self._running(machine) if each.facts["bid"]), key=lambda each: each.facts["bid"]
        )
        for each in bids:
            if self._used(machine) <= self._room(machine):
                return
            self.outbid(each)

    def _running(self, machine: int) -> Iterator[Resource]:
        return (
            each for each in self.books.existing("vm") if each.facts["machine"] == machine and not self._stopped(each)
        )

    def outbid(self, instance: Resource, wish: str = "stopped") -> None:
        """`wish`: what Vast.ai says is intended then; `running` for one that is to go on some day."""
        instance.goes(self.now(), (0, "stopped"))
        instance.facts["wish"] = wish

    @answers("showInstances")
    def _list(self, call: Call) -> Any:
        filters = _parsed(call.query.get("select_filters", "{}"), dict)
        columns = _parsed(call.query.get("select_cols", '["*"]'), list)
        if unknown := filters.keys() - {"label", "id"} or filters.get("label", {}).keys() - {"eq"}:
            raise _problem(400, "invalid_request", f"can't filter by {unknown}")
        found = [
            each
            for each in self.books.shown("vm")
            if all(_meets(self._instance(each), *wanted) for wanted in filters.items())
        ]
        order = _parsed(call.query.get("order_by", "[]"), list)
        page, token = self.page(call, found, int(call.query.get("limit", 25)), "after_token")
        if token and order != [{"col": "id", "dir": "asc"}]:
            raise _problem(400, "invalid_request", "this fake has pages in the order of ids alone")
        rows = [self._instance(each) for each in page]
        if columns != ["*"]:
            known = self.api.operations["showInstances"].responses["200"]["properties"]["instances"]["items"]
            if wrong := set(columns) - known["properties"].keys():
                raise _problem(400, "invalid_request", f"unknown columns {sorted(wrong)}")
            rows = [{name: each.get(name) for name in columns} for each in rows]
        labels = [each.facts["request"].get("label", "") for each in found]
        return {
            "success": True,
            "instances": rows,
            "instances_found": len(rows),
            "total_instances": len(found),
            "label_counts": {label: labels.count(label) for label in labels},
            "next_token": token or None,
        }

    @answers("showInstance")
    def _show(self, call: Call) -> Any:
        found = self.books.find("vm", call.path["id"])
        return {"instances": None if found is None else self._instance(found)}

    @answers("destroyInstance")
    def _destroy(self, call: Call) -> Any:
        found = self.books.find("vm", call.path["id"])
        if found is None:
            raise _problem(404, "no_such_instance", f"Instance {call.path['id']} not found")
        if found.state(self.now()) != "ending":
            found.goes(self.now(), (0, "ending"), (self.end, GONE))
        return {"success": True}

    def _instance(self, made: Resource) -> dict[str, Any]:
        state, host, body = str(made.state(self.now())), HOSTS[made.facts["machine"]], made.facts["request"]
        contract = "stopped" if state == "stopped" else "running"
        begun = state not in ("setup", "stopped", "created")
        return {
            "id": made.facts["number"],
            "actual_status": None if state in ("setup", "ending") else state,
            "intended_status": made.facts["wish"],
            "cur_state": contract if state != "setup" else "stopped",
            "next_state": contract,
            "status_msg": made.facts["message"] or None,
            "label": body.get("label"),
            "is_bid": made.facts["bid"] is not None,
            "start_date": made.born / SECOND,
            "end_date": made.facts["ends"],
            "geolocation": host.place,
            "machine_id": made.facts["machine"],
            "num_gpus": made.facts["gpus"],
            "gpu_name": host.gpu,
            "image_uuid": body["image"],
            "image_runtype": body.get("runtype", "ssh"),
            "public_ipaddr": "198.51.100.7\n" if begun else "",
        }


def _meets(row: Mapping[str, Any], name: str, wanted: Mapping[str, Any]) -> bool:
    value = row.get(name.upper(), row.get(name))
    return all(_OPERATORS[operator](value, limit) for operator, limit in wanted.items())


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.isupper()}


def _parsed(text: str, kind: type) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, kind):
        raise _problem(400, "invalid_request", "it isn't JSON of the right kind")
    return found


def _problem(status: int, error: str, message: str) -> Refusal:
    return Refusal(status, {"success": False, "error": error, "msg": message})

"""Lambda Cloud: types with capacity here and there, instances that boot for long, and few calls a second.

`api.json` is made by `extract` from the document that it names. What that doesn't say is from Lambda's pages and from
reports of those who use it: how often an account may call, that a launch takes exactly one key, that an instance which
is ending isn't ended again, and that the list lags behind a launch.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Call, Rate, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers

KEY = "secret_lambda_0123456789abcdef0123456789abcdef"
REGIONS = ("us-east-1", "us-south-1", "us-west-3")
QUOTA = "instances"  # the counter of what the account may have
LONGEST_SCRIPT = 1 << 20
SSH = {"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "SSH"}
NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
NO_OBJECT, WRONG = "global/object-does-not-exist", "global/invalid-parameters"


@dataclass(frozen=True)
class Kind:
    """A type. The price is in cents an hour."""

    cents: int
    gpus: int
    gpu: str
    cpus: int
    memory: int  # GiB
    disk: int  # GiB


KINDS = {
    "gpu_1x_a10": Kind(129, 1, "A10 (24 GB PCIe)", 30, 200, 1400),
    "gpu_1x_gh200": Kind(229, 1, "GH200 (96 GB)", 64, 432, 4096),
    "gpu_8x_h100_sxm5": Kind(3192, 8, "H100 (80 GB SXM5)", 208, 1800, 22528),
    "gpu_8x_v100": Kind(632, 8, "Tesla V100 (16 GB)", 92, 448, 5734),
    "cpu_4x_general": Kind(18, 0, "N/A", 4, 16, 512),
}


def stock(kind: str, region: str) -> str:
    return f"{kind} in {region}"


def limits() -> dict[str, Rate]:
    return {"*": Rate(1, SECOND), "launchInstance": Rate(1, 12 * SECOND)}


class LambdaApi(Fake):
    api = Api.of(Path(__file__).with_name("api.json"))

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.boot, self.end = 3 * MINUTE, 20 * SECOND
        self.lingers: Micros = 0  # how long what has ended is still listed, as `terminated`
        self.unready: Micros = 0  # how long an instance can't be terminated after its launch
        self.inactive = False  # the account
        self.rules: list[Any] = [SSH]  # of the account's firewall
        self.short: set[str] = set()  # types whose next instance is taken back before it runs
        self.cents: dict[str, int] = {}  # prices of types, where they have changed
        self.hidden: set[str] = set()  # types whose capacity is shown although it is gone

    # --- what is refused before anything is done ----------------------------------------------------------------------

    def authenticate(self, request: Request) -> None:
        basic = base64.b64encode(f"{KEY}:".encode()).decode()
        if request.headers.get("authorization") not in (f"Bearer {KEY}", f"Basic {basic}"):
            raise _error(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.", "Check the key.")
        if self.inactive:
            raise _error(403, "global/account-inactive", "Your account is inactive.", "Set up a payment method.")

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            return _error(429, "global/rate-limit-exceeded", message)
        return _error(404, "global/not-found", message) if why == "no-route" else _error(400, WRONG, message)

    # --- what is sold -------------------------------------------------------------------------------------------------

    @answers("listInstanceTypes")
    def _types(self, call: Call) -> Any:
        rows = {}
        for name in KINDS:
            there = [region for region in REGIONS if name in self.hidden or self._left(name, region)]
            rows[name] = {
                "instance_type": self._type(name),
                "regions_with_capacity_available": [_region(each) for each in there],
            }
        return {"data": rows}

    @answers("listRegions")
    def _regions(self, call: Call) -> Any:
        return {"data": [_region(name) for name in REGIONS]}

    def _type(self, name: str) -> Any:
        kind = KINDS[name]
        specs = {"vcpus": kind.cpus, "memory_gib": kind.memory, "storage_gib": kind.disk, "gpus": kind.gpus}
        what = f"{kind.gpus}x {kind.gpu}" if kind.gpus else f"{kind.cpus} vCPUs"
        return {
            "name": name,
            "description": what,
            "gpu_description": kind.gpu,
            "price_cents_per_hour": self.cents.get(name, kind.cents),
            "specs": specs,
        }

    def _left(self, kind: str, region: str) -> bool:
        return self.books.over({stock(kind, region): 1}, self.script.limits) is None

    @answers("firewallRulesSet")
    def _set_rules(self, call: Call) -> Any:
        """All of the account's, in place of those that there were."""
        self.rules = call.body["data"]
        return {"data": self.rules}

    # --- keys ---------------------------------------------------------------------------------------------------------

    @answers("listSSHKeys")
    def _keys(self, call: Call) -> Any:
        return {"data": [_key(each) for each in self.books.existing("key")]}

    @answers("addSSHKey")
    def _add_key(self, call: Call) -> Any:
        name = call.body["name"]
        if any(each.facts["name"] == name for each in self.books.existing("key")):
            raise _error(400, "global/duplicate", f"there is a key {name}")
        assert "public_key" in call.body, "a key pair that Lambda generates has a private half"
        return {"data": _key(self.books.add("key", (0, "there"), name=name, public_key=call.body["public_key"]))}

    # --- instances ----------------------------------------------------------------------------------------------------

    @answers("launchInstance")
    def _launch(self, call: Call) -> Any:
        body = call.body
        kind, region, keys = body["instance_type_name"], body["region_name"], body["ssh_key_names"]
        if len(keys) != 1:
            raise _error(400, WRONG, "exactly one SSH key must be named")
        known = {each.facts["name"] for each in self.books.existing("key")}
        for what, name, there in (("type", kind, KINDS), ("region", region, REGIONS), ("key", keys[0], known)):
            if name not in there:
                raise _error(404, NO_OBJECT, f"the {what} {name} does not exist", "Check the request.")
        if len(body.get("user_data", "").encode()) > LONGEST_SCRIPT:
            raise _error(400, WRONG, "user_data is longer than 1 MB")
        if self.books.over({QUOTA: 1}, self.script.limits):
            raise _error(400, "global/quota-exceeded", f"{self.books.used(QUOTA)} instances are yours", "Ask for more.")
        if not self._left(kind, region):
            raise _error(400, NO_CAPACITY, "not enough capacity to fulfil the request", "Try another region.")
        return {"data": {"instance_ids": [self._boots(kind, region, body).id]}}

    def _boots(self, kind: str, region: str, body: Any) -> Resource:
        steps = [(0, "booting"), (self.boot, "active")]
        if kind in self.short:
            steps = [(0, "booting"), (5 * SECOND, "preempted")]
        counts = {QUOTA: 1, stock(kind, region): 1}
        facts = {"request": body, "type": kind, "region": region}
        return self.books.add("vm", *steps, lag=self.script.lag, counts=counts, **facts)

    @answers("listInstances")
    def _list(self, call: Call) -> Any:
        wanted = call.query.get("cluster_id")
        rows = [each for each in self.books.shown("vm") if wanted in (None, each.facts.get("cluster"))]
        return {"data": [self._instance(each) for each in rows]}

    @answers("getInstance")
    def _get(self, call: Call) -> Any:
        return {"data": self._instance(self._found(call.path["id"]))}

    @answers("terminateInstance")
    def _terminate(self, call: Call) -> Any:
        found = [self._found(id) for id in call.body["instance_ids"]]
        for each in found:
            if each.state(self.now()) in ("terminating", "terminated"):
                raise _error(500, "global/unknown", "An unknown error occurred.")
            if self._is_unready(each):
                raise _error(400, WRONG, f"instance {each.id} has not launched yet")
        for each in found:
            each.goes(self.now(), (0, "terminating"), (self.end, "terminated"), (self.end + self.lingers, GONE))
        return {"data": {"terminated_instances": [self._instance(each) for each in found]}}

    def _is_unready(self, made: Resource) -> bool:
        return self.now() < made.born + self.unready

    def _found(self, id: str) -> Resource:
        found = self.books.find("vm", id)
        if found is None:
            raise _error(404, NO_OBJECT, f"instance {id} does not exist")
        return found

    def _instance(self, made: Resource) -> Any:
        state, body, now = str(made.state(self.now())), made.facts["request"], self.now()
        up = made.first("active", now) is not None
        addresses = {"ip": f"198.51.100.{made.number}", "private_ip": f"10.19.60.{made.number}"}
        never = {"available": False, "reason_code": "vm-is-too-old", "reason_description": "not offered"}
        ends: dict[str, Any] = {"available": not self._is_unready(made)}
        if not ends["available"]:
            ends |= {"reason_code": "vm-has-not-launched", "reason_description": "it has not launched yet"}
        return {
            "id": made.id,
            "status": state,
            "name": body.get("name", ""),
            "ssh_key_names": body["ssh_key_names"],
            "file_system_names": [],
            "region": _region(made.facts["region"]),
            "instance_type": self._type(made.facts["type"]),
            "actions": {**dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot"), never), "terminate": ends},
            "tags": body.get("tags", []),
            **(addresses if up else {}),
        }

    # --- what tests look at -------------------------------------------------------------------------------------------

    def booked_node(self, region: str = "us-east-1") -> Resource:
        """A node of a 1-Click cluster, which people book in the console."""
        body = {"ssh_key_names": ["team"], "name": "node-1"}
        steps = (0, "active")
        return self.books.add("vm", steps, request=body, type="gpu_8x_h100_sxm5", region=region, cluster="c-1")

    def billed(self) -> float:
        """Dollars an hour, of all that somebody has launched and that hasn't ended."""
        ended = ("terminating", "terminated", "preempted")
        alive = (each for each in self.books.existing("vm") if each.state(self.now()) not in ended)
        return sum(KINDS[each.facts["type"]].cents for each in alive if "cluster" not in each.facts) / 100


def _region(name: str) -> Any:
    return {"name": name, "description": f"somewhere in {name.partition('-')[0]}"}


def _key(made: Resource) -> Any:
    return {"id": made.id, "name": made.facts["name"], "public_key": made.facts["public_key"]}


def _error(status: int, code: str, message: str, suggestion: str = "") -> Refusal:
    error = {"code": code, "message": message, **({"suggestion": suggestion} if suggestion else {})}
    return Refusal(status, {"error": error})

"""Crusoe Cloud: operations that go on after the answer, one signature a request, and a quota that isn't the stock.

`crusoe.json` is made by `extract` from the document that it names. What that doesn't say is from Crusoe's Go client,
Terraform provider and documents: how requests are signed, that what is unknown is a 403, that the data disk of a
machine outlives it, and that a type with InfiniBand is created in a partition or not at all.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros, iso
from tests.backends.crusoe.disks import Disks
from tests.backends.fakes.books import GONE, Resource, Step
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Call, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers

PROJECT = "00000000-0000-0000-0000-000000000001"
KEY, SECRET = "access-key-of-the-project", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
LOCATIONS = ("us-east1-a", "eu-iceland1-a")
NETWORKS = {f"10000000-0000-0000-0000-00000000000{n}": each for n, each in enumerate(LOCATIONS)}  # InfiniBand's
SKEW = 5 * MINUTE  # between a request's clock and ours
# Name, CPUs, memory and local disk in GB, GPUs and their type; and dollars an hour, which no call says.
TYPES = (
    ("c1a.2x", 2, 8, 0, 0, "", 0.08),
    ("l40s-48gb.1x", 8, 147, 960, 1, "L40S-48GB", 1.0),
    ("a100-80gb.2x", 24, 240, 2_000, 2, "A100-PCIe-80GB", 3.3),
    ("h100-80gb-sxm-ib.8x", 176, 960, 26_800, 8, "H100-SXM-80GB", 31.2),
    ("mi300x-192gb-ib.8x", 252, 2_200, 25_000, 8, "MI300X-192GB", 27.6),
    ("gb200-186gb-nvl-ib.4x", 140, 900, 12_000, 4, "GB200-NVL-186GB", 40.0),
)
PRICES = {row[0]: row[6] for row in TYPES}
DISK_MONTH = 0.08  # a GiB
FILTERS = {"ids": "id", "names": "name", "types": "type", "locations": "location", "states": "state"}
TYPE_FIELDS = ("product_name", "cpu_cores", "memory_gb", "disk_gb", "num_gpu", "gpu_type")
IN_FABRIC = re.compile(r"-(ib|roce)\.")
FORGOTTEN = 30 * DAY  # after which an operation is unknown


def signature(secret: str, method: str, target: str, timestamp: str) -> str:
    """Of the path, the sorted query, the method and the time; not of the body."""
    url = urlsplit(target)
    query = urlencode(sorted(parse_qsl(url.query, keep_blank_values=True), key=lambda pair: pair[0]))
    signed = "".join(f"{each}\n" for each in (unquote(url.path), query, method, timestamp))
    key = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    return base64.urlsafe_b64encode(hmac.digest(key, signed.encode(), "sha256")).decode().rstrip("=")


def capacity_of(location: str, kind: str) -> str:
    return f"stock of {kind} in {location}"


def fabric(location: str, kind: str) -> str:
    """How many machines of the type the InfiniBand network of the location has room for."""
    return f"ports for {kind} in {location}"


def quota(kind: str) -> str:
    return f"quota of {kind.partition('.')[0]}"


class Crusoe(Disks, Fake):
    api = Api.of(Path(__file__).with_name("crusoe.json"))

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.boot, self.end, self.fails = 60 * SECOND, 20 * SECOND, 20 * SECOND  # how long each takes
        self.unique_names = True  # not known to be so: a test can have it either way
        self.listed_types = {row[0] for row in TYPES}  # the list may lack some that are in stock
        self.short: set[str] = set()  # types of which the next machine finds no room
        self.broken: set[str] = set()  # and those whose next machine breaks as it boots

    def authenticate(self, request: Request) -> None:
        timestamp = request.headers.get("x-crusoe-timestamp", "")
        right = f"Bearer 1.0:{KEY}:{signature(SECRET, request.method, request.target, timestamp)}"
        sent = [pair[0] for pair in parse_qsl(urlsplit(request.target).query, keep_blank_values=True)]
        is_right = hmac.compare_digest(right, request.headers.get("authorization", ""))
        if not is_right or sent != sorted(sent) or not self._is_now(timestamp):
            raise _error(401, "bad_credential", "the signature is wrong")

    def _is_now(self, timestamp: str) -> bool:
        try:
            at = datetime.fromisoformat(timestamp).timestamp() * SECOND
        except ValueError:
            return False
        return abs(at - self.now()) <= SKEW

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            return _error(429, "too_many_requests", message, {"retry-after": str(int(wait) + 1)})
        return _error(404, "not_found", message) if why == "no-route" else _error(400, "bad_request", message)

    def billed(self) -> float:
        """Dollars an hour, for all that exists."""
        running = (each for each in self.books.existing("vm") if each.state(self.now()) == "STATE_RUNNING")
        return sum(PRICES[each.facts["type"]] for each in running) + self.disks_billed(DISK_MONTH)

    # --- what is sold ------------------------------------------------------------------------------------------------

    @answers("listLocations")
    def _locations(self, call: Call) -> Any:
        return {"items": list(LOCATIONS)}

    @answers("getVMTypes")
    def _types(self, call: Call) -> Any:
        rest = {"description": "", "cpu_type": "amd64", "memory_type": "", "disk_type": ""}
        shown = (row for row in TYPES if row[0] in self.listed_types)
        return {"items": [{**rest, **dict(zip(TYPE_FIELDS, row[:6], strict=True))} for row in shown]}

    @answers("listSliceCapacities")
    def _capacities(self, call: Call) -> Any:
        kinds = call.query.get("product_name", [row[0] for row in TYPES])
        locations = call.query.get("location", LOCATIONS)
        places = [(location, row[0]) for location in LOCATIONS for row in TYPES]
        return {
            "items": [
                {"type": kind, "location": location, "quantity": self._left(capacity_of(location, kind), 100)}
                for location, kind in places
                if kind in kinds and location in locations
            ]
        }

    @answers("listProjectQuotas")
    def _quotas(self, call: Call) -> Any:
        rows: list[dict[str, Any]] = [{"programmatic_name": "c1a", "category": "Storage", "max": 0, "available": 0}]
        for family in sorted({row[0].partition(".")[0] for row in TYPES}):
            left, used = self._left(quota(family), 1_000), self.books.used(quota(family))
            row = {"programmatic_name": family, "category": "Instances", "max": left + used}
            rows.append({**row, "used": used, "available": left})
        return {"quotas": rows}

    def _left(self, counter: str, usual: int) -> int:
        return max(0, self.script.limits.get(counter, usual) - self.books.used(counter))

    # --- machines ----------------------------------------------------------------------------------------------------

    @answers("createInstance")
    def _create(self, call: Call) -> Any:
        body = call.body
        kind, place = body["type"], body["location"]
        if kind not in {row[0] for row in TYPES} or place not in LOCATIONS:
            raise self.refused("invalid", f"no {kind} in {place}")
        self.admit_name("vm", body["name"])
        for each in body.get("disks", ()):
            self.admit_disk(each, place)
        partition, ports = self._joined(body)
        slices = int(kind.partition(".")[2].removesuffix("x"))
        if over := self.books.over({quota(kind): slices}, self.script.limits):
            raise self.refused("invalid", f"rpc error: code = ResourceExhausted desc = {over} exceeded")
        counts = {quota(kind): slices, capacity_of(place, kind): 1, **ports}
        short = kind in self.short or self.books.over(counts, self.script.limits) is not None
        breaks = kind in self.broken
        self.short.discard(kind), self.broken.discard(kind)
        takes, end = (self.fails, GONE) if short else (self.boot, "STATE_ERROR" if breaks else "STATE_RUNNING")
        facts = {"request": body, "type": kind, "partition": partition, "attachments": []}
        steps = (0, "STATE_CREATING"), (takes, end)
        made = self.add("vm", steps, {} if short else counts, **named(body), **facts)
        os = self.new_disk(f"{body['name']}-os", place, "128GiB", os=True)
        made.facts["os"] = os
        for each in [{"disk_id": os.id, "mode": "read-write", "attachment_type": "os"}, *body.get("disks", ())]:
            self.holds(made, each, self.now())
        if short:
            os.goes(self.now(), (takes, GONE))
        failure = {"code": "out_of_stock", "message": "out of stock"} if short else None
        if breaks:
            failure = {"code": "internal", "message": "the host failed"}
        return self.operation(made, takes, failure)

    def _joined(self, body: Any) -> tuple[str, dict[str, int]]:
        """The partition that the machine joins, and what it takes of its network."""
        kind, adapters = body["type"], body.get("host_channel_adapters") or []
        if not IN_FABRIC.search(kind):
            if adapters:
                raise self.refused("invalid", f"{kind} has no host channel adapters")
            return "", {}
        if len(adapters) != 1:
            raise self.refused("invalid", f"{kind} needs a partition")
        adapter = adapters[0]
        partition = self.books.find(
            "partition", adapter.get("transport_partition_id") or adapter.get("ib_partition_id")
        )
        if partition is None:
            raise self.refused("invalid", "no such partition")
        if NETWORKS[partition.facts["ib_network_id"]] != body["location"]:
            raise self.refused("invalid", "the partition is in another location")
        return partition.id, {fabric(body["location"], kind): 1}

    @answers("listInstances")
    def _list(self, call: Call) -> Any:
        found = list(self.books.shown("vm"))
        for name, of in FILTERS.items():
            if name in call.query:
                wanted = call.query[name].split(",")
                found = [each for each in found if self._vm(each)[of] in wanted]
        page, more = self.page(call, found, int(call.query.get("limit", 20)), "next_token")
        return {"items": [self._vm(each) for each in page], **({"next_page_token": more} if more else {})}

    @answers("getInstance")
    def _get(self, call: Call) -> Any:
        return self._vm(self.found("vm", call.path["vm_id"]))

    @answers("deleteInstance")
    def _delete(self, call: Call) -> Any:
        machine = self.found("vm", call.path["vm_id"])
        if machine.state(self.now()) == "STATE_DELETING":
            raise self.refused("invalid", f"{machine.id} is being deleted")
        machine.goes(self.now(), (0, "STATE_DELETING"), (self.end, GONE))
        machine.facts["os"].goes(self.now(), (self.end, GONE))
        return self.operation(machine, self.end)

    def _vm(self, machine: Resource) -> Any:
        facts, running = machine.facts, machine.state(self.now()) == "STATE_RUNNING"
        public = {"id": "ip", "type": "dynamic", "address": f"203.0.113.{machine.number}" if running else ""}
        network = dict.fromkeys(("id", "name", "network", "subnet", "interface_type", "mac_address"), "")
        ips = [{"private_ipv4": {"address": f"10.0.0.{machine.number}"}, "public_ipv4": public}]
        of_network = dict.fromkeys(("type", "guid", "ib_network_id", "transport_network_id"), "")
        adapter = {**of_network, **dict.fromkeys(("ib_partition_id", "transport_partition_id"), facts["partition"])}
        return {
            **named(facts),
            **dates(machine),
            "id": machine.id,
            "project_id": PROJECT,
            "type": facts["type"],
            "state": machine.state(self.now()),
            "maintenance_policy": "unspecified",
            "host_channel_adapters": [adapter] if facts["partition"] else [],
            "network_interfaces": [{**network, "external_dns_name": "", "ips": ips}],
            "disks": self.disks_of(machine),
        }

    # --- InfiniBand --------------------------------------------------------------------------------------------------

    @answers("listIBNetworks")
    def _networks(self, call: Call) -> Any:
        kinds = [row[0] for row in TYPES if IN_FABRIC.search(row[0])]
        return {
            "items": [
                {
                    "id": network,
                    "name": f"ib-{location}",
                    "location": location,
                    "capacities": [
                        {"slice_type": kind, "quantity": self._left(fabric(location, kind), 50)} for kind in kinds
                    ],
                }
                for network, location in NETWORKS.items()
            ]
        }

    @answers("listIBPartitions")
    def _partitions(self, call: Call) -> Any:
        return {"items": [self._partition(each) for each in self.books.shown("partition")]}

    @answers("createIBPartition")
    def _create_partition(self, call: Call) -> Any:
        if call.body["ib_network_id"] not in NETWORKS:
            raise self.refused("invalid", "no such network")
        self.admit_name("partition", call.body["name"])
        made = self.books.add("partition", (0, "there"), **call.body)  # there at once
        return self._partition(made)

    @answers("getIBPartition")
    def _get_partition(self, call: Call) -> Any:
        return self._partition(self.found("partition", call.path["ib_partition_id"]))

    @answers("deleteIBPartition")
    def _delete_partition(self, call: Call) -> Any:
        partition = self.found("partition", call.path["ib_partition_id"])
        if any(each.facts["partition"] == partition.id for each in self.books.existing("vm")):
            raise self.refused("invalid", f"partition {partition.id} is in use")
        partition.goes(self.now(), (0, GONE))

    def _partition(self, made: Resource) -> Any:
        return {"id": made.id, "name": made.facts["name"], "ib_network_id": made.facts["ib_network_id"]}

    # --- operations --------------------------------------------------------------------------------------------------

    @answers("getComputeVMsInstancesOperation", "getStorageDisksOperation")
    def _get_operation(self, call: Call) -> Any:
        return self._as_operation(self.found("operation", call.path["operation_id"]))

    @answers("listComputeVMsInstancesOperations", "listStorageDisksOperations")
    def _operations(self, call: Call) -> Any:
        of, states = call.query.get("resource_id"), call.query.get("state")
        since = call.query.get("lower_time_bound", "")
        kept = (each for each in self.books.existing("operation") if self.now() - each.born < FORGOTTEN)
        found = [self._as_operation(each) for each in kept if of in (None, each.facts["of"])]
        if of is not None and not found:
            raise _error(403, "forbidden", f"no permission for operations of {of}")
        found = [each for each in found if each["started_at"] >= since]
        return {"items": [each for each in reversed(found) if states is None or each["state"] in states]}

    def operation(self, of: Resource, takes: Micros, failure: Any = None) -> Any:
        end = "FAILED" if failure else "SUCCEEDED"
        made = self.books.add("operation", (0, "IN_PROGRESS"), (takes, end), of=of.id, failure=failure)
        return {"operation": self._as_operation(made)}

    def _as_operation(self, made: Resource) -> Any:
        state = made.state(self.now())
        done = state != "IN_PROGRESS"
        return {
            "operation_id": made.id,
            "state": state,
            "metadata": {"id": made.facts["of"]},
            "started_at": iso(made.born),
            "completed_at": iso(made.since(self.now())) if done else "",
            **({"result": made.facts["failure"]} if state == "FAILED" else {}),
        }

    # --- what they share ---------------------------------------------------------------------------------------------

    def found(self, kind: str, identity: str) -> Resource:
        found = self.books.find(kind, identity)
        if found is None or (kind == "operation" and self.now() - found.born >= FORGOTTEN):
            raise _error(403, "forbidden", f"no permission for {kind} {identity}")
        return found

    def add(self, kind: str, steps: Iterable[Step], counts: Mapping[str, int], **facts: Any) -> Resource:
        return self.books.add(kind, *steps, lag=self.script.lag, counts=counts, **facts)

    def admit_name(self, kind: str, name: str) -> None:
        if self.unique_names and any(each.facts["name"] == name for each in self.books.existing(kind)):
            raise self.refused("invalid", f"{name} already exists")

    def is_location(self, name: str | None) -> bool:
        return name in LOCATIONS


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Refusal:
    return Refusal(status, {"code": code, "message": message}, headers)


def named(facts: Mapping[str, Any]) -> dict[str, str]:
    return {"name": facts["name"], "location": facts["location"]}


def dates(made: Resource) -> dict[str, str]:
    return {"created_at": iso(made.born), "updated_at": iso(made.born)}

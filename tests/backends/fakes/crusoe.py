"""Crusoe Cloud: operations that go on after the answer, one signature a request, and a quota that isn't the stock.

`crusoe.json` is made by `extract` from the document that it names. What that doesn't say is from Crusoe's Go client
and Terraform provider: how requests are signed, that an unknown machine or operation is a 403, and that the data disk
of a machine outlives it.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from chalicelib.domain.instants import MINUTE, SECOND, Micros, iso
from tests.backends.fakes.books import GONE, Resource, Step
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Call, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers

PROJECT = "00000000-0000-0000-0000-000000000001"
KEY, SECRET = "access-key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
LOCATIONS = ("us-east1-a", "eu-iceland1-a")
SKEW = 5 * MINUTE  # between a request's clock and ours
# Name, CPUs, memory and local disk in GB, GPUs and their type.
TYPES = (
    ("c1a.2x", 2, 8, 0, 0, ""),
    ("l40s-48gb.1x", 8, 147, 0, 1, "L40S-48GB"),
    ("a100-80gb.2x", 24, 240, 2_000, 2, "A100-PCIe-80GB"),
)
FILTERS = {"ids": "id", "names": "name", "types": "type", "locations": "location", "states": "state"}
TYPE_FIELDS = ("product_name", "cpu_cores", "memory_gb", "disk_gb", "num_gpu", "gpu_type")


def signature(secret: str, method: str, target: str, timestamp: str) -> str:
    """Of the path, the sorted query, the method and the time; not of the body."""
    url = urlsplit(target)
    query = urlencode(sorted(parse_qsl(url.query, keep_blank_values=True), key=lambda pair: pair[0]))
    signed = "".join(f"{each}\n" for each in (unquote(url.path), query, method, timestamp))
    key = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    return base64.urlsafe_b64encode(hmac.digest(key, signed.encode(), "sha256")).decode().rstrip("=")


def capacity_of(location: str, kind: str) -> str:
    return f"stock of {kind} in {location}"


def quota(kind: str) -> str:
    return f"quota of {kind.partition('.')[0]}"


class Crusoe(Fake):
    api = Api.of(Path(__file__).with_name("crusoe.json"))

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.boot, self.end = 60 * SECOND, 20 * SECOND
        self.unique_names = True  # not known to be so: a test can have it either way

    def authenticate(self, request: Request) -> None:
        timestamp = request.headers.get("x-crusoe-timestamp", "")
        right = f"Bearer 1.0:{KEY}:{signature(SECRET, request.method, request.target, timestamp)}"
        if not hmac.compare_digest(right, request.headers.get("authorization", "")) or not self._is_now(timestamp):
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

    # --- what is sold ------------------------------------------------------------------------------------------------

    @answers("listLocations")
    def _locations(self, call: Call) -> Any:
        return {"items": list(LOCATIONS)}

    @answers("getVMTypes")
    def _types(self, call: Call) -> Any:
        rest = {"description": "", "cpu_type": "amd64", "memory_type": "", "disk_type": ""}
        return {"items": [{**rest, **dict(zip(TYPE_FIELDS, row, strict=True))} for row in TYPES]}

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
        rows = []
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
        body, kinds = call.body, {row[0] for row in TYPES}
        if body["type"] not in kinds or body["location"] not in LOCATIONS:
            raise self.refused("invalid", f"no {body['type']} in {body['location']}")
        self._admit_name("vm", body["name"])
        data = {each["disk_id"]: each["mode"] for each in body.get("disks", ()) if self._admit_disk(each, body)}
        slices = int(body["type"].partition(".")[2].removesuffix("x"))
        if over := self.books.over({quota(body["type"]): slices}, self.script.limits):
            raise self.refused("invalid", f"{over} exceeded")
        counts = {quota(body["type"]): slices, capacity_of(body["location"], body["type"]): 1}
        short = self.books.over(counts, self.script.limits) is not None
        os = self._disk(f"{body['name']}-os", body["location"], "60GiB", os=True)
        facts = {"request": body, "disks": {os.id: "read-write", **data}, "os": os}
        steps = (0, "STATE_CREATING"), (self.boot, GONE if short else "STATE_RUNNING")
        made = self._add("vm", steps, {} if short else counts, **_named(body), type=body["type"], **facts)
        if short:
            os.goes(self.now(), (self.boot, GONE))
        return self._operation(made, self.boot, {"code": "out_of_stock", "message": "out of stock"} if short else None)

    def _admit_disk(self, attached: Any, body: Any) -> bool:
        disk = self.books.find("disk", attached["disk_id"])
        if disk is None or disk.facts["location"] != body["location"]:
            raise self.refused("invalid", f"no disk {attached['disk_id']} in {body['location']}")
        if self._holders(disk):
            raise self.refused("invalid", f"disk {disk.id} is attached")
        return True

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
        return self._vm(self._found("vm", call.path["vm_id"]))

    @answers("deleteInstance")
    def _delete(self, call: Call) -> Any:
        machine = self._found("vm", call.path["vm_id"])
        if machine.state(self.now()) != "STATE_DELETING":
            machine.goes(self.now(), (0, "STATE_DELETING"), (self.end, GONE))
            machine.facts["os"].goes(self.now(), (self.end, GONE))
        return self._operation(machine, self.end)

    def _vm(self, machine: Resource) -> Any:
        facts, running = machine.facts, machine.state(self.now()) == "STATE_RUNNING"
        public = {"id": "ip", "type": "dynamic", "address": f"203.0.113.{machine.number}" if running else ""}
        network = dict.fromkeys(("id", "name", "network", "subnet", "interface_type", "mac_address"), "")
        ips = [{"private_ipv4": {"address": f"10.0.0.{machine.number}"}, "public_ipv4": public}]
        attached = [each for each in self.books.existing("disk") if each.id in facts["disks"]]
        return {
            **_named(facts),
            **_dates(machine),
            "id": machine.id,
            "project_id": PROJECT,
            "type": facts["type"],
            "state": machine.state(self.now()),
            "maintenance_policy": "unspecified",
            "host_channel_adapters": [],
            "network_interfaces": [{**network, "external_dns_name": "", "ips": ips}],
            "disks": [{**self._shown(disk), **self._attachment(disk, machine)} for disk in attached],
        }

    def _attachment(self, disk: Resource, machine: Resource) -> Any:
        return {"mode": machine.facts["disks"][disk.id], "attachment_type": "os" if disk.facts["os"] else "data"}

    # --- disks -------------------------------------------------------------------------------------------------------

    @answers("createDisk")
    def _create_disk(self, call: Call) -> Any:
        body = call.body
        if body.get("location") not in LOCATIONS or "size" not in body:
            raise self.refused("invalid", "a disk has a location and a size")
        self._admit_name("disk", body["name"])
        return self._operation(self._disk(body["name"], body["location"], body["size"]), 5 * SECOND)

    @answers("listDisks")
    def _disks(self, call: Call) -> Any:
        names = (("disk_ids", "id"), ("disk_names", "name"), ("location", "location"))
        wanted = {of: call.query[name] for name, of in names if name in call.query}
        data_only = call.query.get("exclude_os", False)
        shown = [self._held(each) for each in self.books.shown("disk") if not (data_only and each.facts["os"])]
        return {"items": [disk for disk in shown if all(disk[of] in values for of, values in wanted.items())]}

    @answers("getDisk")
    def _get_disk(self, call: Call) -> Any:
        return self._held(self._found("disk", call.path["disk_id"]))

    @answers("deleteDisk")
    def _delete_disk(self, call: Call) -> Any:
        disk = self._found("disk", call.path["disk_id"])
        if self._holders(disk):
            raise self.refused("invalid", f"disk {disk.id} is busy")
        disk.goes(self.now(), (5 * SECOND, GONE))
        return self._operation(disk, 5 * SECOND)

    def _disk(self, name: str, location: str, size: str, *, os: bool = False) -> Resource:
        return self._add("disk", [(0, "there")], {}, name=name, location=location, size=size, os=os)

    def _holders(self, disk: Resource) -> list[Resource]:
        return [each for each in self.books.existing("vm") if disk.id in each.facts["disks"]]

    def _held(self, disk: Resource) -> Any:
        attached = [{"vm_id": each.id, **self._attachment(disk, each)} for each in self._holders(disk)]
        return {**self._shown(disk), "attached_to": attached}

    def _shown(self, disk: Resource) -> Any:
        rest = {"id": disk.id, "type": "persistent-ssd", "block_size": 4096, "serial_number": f"S{disk.number:08}"}
        return {**_named(disk.facts), "size": disk.facts["size"], **rest, **_dates(disk)}

    # --- operations --------------------------------------------------------------------------------------------------

    @answers("getComputeVMsInstancesOperation", "getStorageDisksOperation")
    def _get_operation(self, call: Call) -> Any:
        return self._as_operation(self._found("operation", call.path["operation_id"]))

    def _operation(self, of: Resource, takes: Micros, failure: Any = None) -> Any:
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

    def _found(self, kind: str, identity: str) -> Resource:
        found = self.books.find(kind, identity)
        if found is None:
            raise _error(403, "forbidden", f"no permission for {kind} {identity}")
        return found

    def _add(self, kind: str, steps: Iterable[Step], counts: Mapping[str, int], **facts: Any) -> Resource:
        return self.books.add(kind, *steps, lag=self.script.lag, counts=counts, **facts)

    def _admit_name(self, kind: str, name: str) -> None:
        if self.unique_names and any(each.facts["name"] == name for each in self.books.existing(kind)):
            raise self.refused("invalid", f"{name} already exists")


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Refusal:
    return Refusal(status, {"code": code, "message": message}, headers)


def _named(facts: Mapping[str, Any]) -> dict[str, str]:
    return {"name": facts["name"], "location": facts["location"]}


def _dates(made: Resource) -> dict[str, str]:
    return {"created_at": iso(made.born), "updated_at": iso(made.born)}

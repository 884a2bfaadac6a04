"""Disks."""

from __future__ import annotations

import re
from typing import Any

from chalicelib.domain.instants import SECOND
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import answers
from tests.backends.gcp.instances import NAME, Instances, check_labels
from tests.backends.gcp.operations import ROOT, invalid, not_found, refusal
from tests.backends.gcp.places import ZONES


class Disks(Instances):
    @answers("disks.insert")
    def _insert_disk(self, call: Call) -> Any:
        zone, body = call.path["zone"], call.body
        if zone not in ZONES:
            raise not_found(f"zones/{zone}")
        if again := self.replayed(call, body):
            return self.shown_operation(again)
        if not NAME.fullmatch(body.get("name", "")):
            raise invalid("name", f"'{body.get('name')}'. Must be a match of regex")
        if (
            body.get("type", "").rpartition("/")[2] not in ("pd-balanced", "hyperdisk-balanced")
            or zone not in body["type"]
        ):
            raise not_found(body.get("type", ""))
        if not 10 <= int(body.get("sizeGb", 0)) <= 65_536:
            raise invalid("sizeGb", f"'{body.get('sizeGb')}'. Disk size must be between 10 GB and 65536 GB.")
        check_labels(body.get("labels", {}))
        if self._named("disk", zone, body["name"]):
            raise refusal(409, "alreadyExists", f"The resource 'zones/{zone}/disks/{body['name']}' already exists")
        self.books.add(
            "disk",
            (0, "CREATING"),
            (5 * SECOND, "READY"),
            lag=self.script.lag,
            zone=zone,
            name=body["name"],
            body=body,
            on={},
        )
        made = self.operation("insert", f"zones/{zone}", f"disks/{body['name']}", call=call, sent=body)
        return self.shown_operation(made)

    @answers("instances.attachDisk")
    def _attach(self, call: Call) -> Any:
        machine = self.visible("vm", call, "instance", "instances")
        zone, name, body = machine.facts["zone"], machine.facts["name"], call.body
        found = re.fullmatch(rf"projects/[^/]+/zones/{zone}/disks/([^/]+)", body.get("source", ""))
        disk = self._named("disk", zone, found[1]) if found else None
        if disk is None:
            raise not_found(body.get("source", ""))
        if machine.state(self.now()) != "RUNNING" or disk.state(self.now()) != "READY":
            raise refusal(400, "resourceNotReady", f"The resource '{name}' or its disk is not ready")
        if body.get("autoDelete") or not body.get("deviceName"):
            raise invalid("autoDelete", "the test wants a disk that stays, and a name for it")
        alone = {"READ_WRITE", body.get("mode", "READ_WRITE")} & {mode for mode, _, _ in disk.facts["on"].values()}
        if self._users(disk) and (alone or body.get("mode") == "READ_WRITE"):
            text = f"The disk resource '{body['source']}' is already being used by '{self._users(disk)[0]}'"
            wrong = {"code": "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "message": text}
            failed = self.operation("attachDisk", f"zones/{zone}", f"instances/{name}", 0, error=[wrong], status=400)
            return self.shown_operation(failed)
        disk.facts["on"][machine.number] = (body.get("mode", "READ_WRITE"), False, body["deviceName"])
        return self.shown_operation(self.operation("attachDisk", f"zones/{zone}", f"instances/{name}", 2))

    @answers("instances.detachDisk")
    def _detach(self, call: Call) -> Any:
        machine = self.visible("vm", call, "instance", "instances")
        zone, name, device = machine.facts["zone"], machine.facts["name"], call.query["deviceName"]
        for disk in self.books.existing("disk"):
            if disk.facts["on"].get(machine.number, ("", False, ""))[2] == device:
                del disk.facts["on"][machine.number]
                return self.shown_operation(self.operation("detachDisk", f"zones/{zone}", f"instances/{name}", 2))
        raise invalid("deviceName", f"'{device}'. No attached disk found with device name '{device}'.")

    @answers("disks.get")
    def _get_disk(self, call: Call) -> Any:
        return self.shown_disk(self.visible("disk", call, "disk", "disks"))

    @answers("disks.aggregatedList")
    def _list_all_disks(self, call: Call) -> Any:
        scopes = [f"zones/{zone}" for zone in ZONES]
        return self.by_scope(call, self.books.shown("disk"), self.shown_disk, "disks", scopes)

    @answers("disks.delete")
    def _delete_disk(self, call: Call) -> Any:
        disk = self.visible("disk", call, "disk", "disks")
        zone, name = disk.facts["zone"], disk.facts["name"]
        if users := self._users(disk):
            text = f"The disk resource '{ROOT}/zones/{zone}/disks/{name}' is already being used by '{users[0]}'"
            raise refusal(400, "resourceInUseByAnotherResource", text)
        disk.goes(self.now(), (0, "DELETING"), (5 * SECOND, GONE))
        return self.shown_operation(self.operation("delete", f"zones/{zone}", f"disks/{name}"))

    def _users(self, disk: Resource) -> list[str]:
        machines = {each.number: each for each in self.books.existing("vm")}
        on = [machines[number] for number in disk.facts["on"] if number in machines]
        return [f"{ROOT}/zones/{each.facts['zone']}/instances/{each.facts['name']}" for each in on]

    def shown_disk(self, made: Resource) -> dict[str, Any]:
        body, zone = made.facts["body"], made.facts["zone"]
        users = self._users(made)
        return {
            "name": made.facts["name"],
            "id": str(made.number),
            "zone": f"{ROOT}/zones/{zone}",
            "status": str(made.state(self.now())),
            "sizeGb": body["sizeGb"],
            "type": f"{ROOT}/{body['type']}",
            "labels": body.get("labels", {}),
            **({"accessMode": body["accessMode"]} if "accessMode" in body else {}),
            **({"users": users} if users else {}),
        }

"""Disks."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import SECOND
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import answers
from tests.backends.gcp.instances import Instances
from tests.backends.gcp.operations import ROOT, refusal
from tests.backends.gcp.places import ZONES


class Disks(Instances):
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
            **({"users": users} if users else {}),
        }

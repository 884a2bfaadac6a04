"""Disks: those of machines, and those that outlive them."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import SECOND, iso
from tests.backends.azure.fake.api import Part, error, path_of
from tests.backends.azure.fake.shop import LOCATIONS, SIZES, ZONES
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Answer, Call
from tests.backends.fakes.server import answers

SKUS = {"Standard_LRS", "StandardSSD_LRS", "Premium_LRS", "Premium_ZRS", "StandardSSD_ZRS", "PremiumV2_LRS"}
ATTACHING = 8 * SECOND


class Disks(Part):
    @answers("Disks_create_or_update")
    def _create_disk(self, call: Call) -> Any:
        path, body = path_of(call), call.body
        self.open_group(path)
        self.check_tags(body)
        made = self.existing("disk", path)
        if made is not None:
            if made.facts.get("body", {}).get("zones") != body.get("zones"):
                raise error(409, "PropertyChangeNotAllowed", "Changing property 'zones' is not allowed.")
            return self._disk(made)
        location, zones, has = body["location"], body.get("zones", []), body["properties"]
        if location not in LOCATIONS or not set(zones) <= set(ZONES[location]) or len(zones) > 1:
            raise error(400, "InvalidParameter", f"no zones {zones} in {location}")
        if body.get("sku", {}).get("name") not in SKUS:
            raise error(400, "InvalidParameter", "no such sku")
        if has["creationData"]["createOption"] != "Empty" or not 1 <= has.get("diskSizeGB", 0) <= 32_767:
            raise error(400, "InvalidParameter", "an empty disk has a size from 1 to 32767")
        given = {"location": location, "zones": zones, "size": has["diskSizeGB"], "tags": body.get("tags", {})}
        steps = (0, "Creating"), (5 * SECOND, "Succeeded")
        made = self.add("disk", path, *steps, lag=self.script.lag, **given, machine="", body=body)
        return Answer(202, self._disk(made), self.operation(call, 5 * SECOND))

    def with_disk(self, path: str, location: str, zones: list[str], size: int, **facts: Any) -> Resource:
        given = {"location": location, "zones": zones, "size": size}
        return self.add("disk", path, (0, "Succeeded"), lag=self.script.lag, **given, **{"machine": "", **facts})

    @answers("Disks_get")
    def _get_disk(self, call: Call) -> Any:
        return self._disk(self.found("disk", path_of(call)))

    @answers("Disks_list_by_resource_group")
    def _list_disks(self, call: Call) -> Any:
        self.in_group(path_of(call))
        prefix = path_of(call).lower() + "/"
        shown = (each for each in self.books.shown("disk") if each.facts["path"].lower().startswith(prefix))
        return self.listing(call, shown, self._disk)

    @answers("Disks_delete")
    def _delete_disk(self, call: Call) -> Any:
        self.in_group(path_of(call))
        made = self.existing("disk", path_of(call))
        if made is None:
            return Answer(204)
        if holder := self.holder(made):
            raise error(
                409, "OperationNotAllowed", f"Disk {made.facts['path']} is attached to VM {holder.facts['path']}."
            )
        made.goes(self.now(), (0, "Deleting"), (3 * SECOND, GONE))
        return Answer(202, None, self.operation(call, 3 * SECOND))

    def holder(self, disk: Resource) -> Resource | None:
        return self.existing("vm", disk.facts["machine"]) if disk.facts["machine"] else None

    def _disk(self, made: Resource) -> Any:
        path, facts, state = made.facts["path"], made.facts, made.state(self.now())
        held = self.holder(made) is not None or (facts["machine"] and "disk" in self.clings)
        has = {
            "creationData": {"createOption": "FromImage" if facts.get("os") else "Empty"},
            "diskSizeGB": facts["size"],
            "provisioningState": state,
            "timeCreated": iso(made.born),
            "diskState": "Attached" if held else "Unattached",
        }
        zones = {"zones": facts["zones"]} if facts["zones"] else {}
        managed = {"managedBy": facts["machine"].upper()} if held else {}
        shown = {"id": path, "name": path.rpartition("/")[2], "location": facts["location"], "tags": facts["tags"]}
        return {**shown, **zones, **managed, "properties": has}

    # --- attach and detach -------------------------------------------------------------------------------------------

    @answers("VirtualMachines_attach_detach_data_disks")
    def _attach(self, call: Call) -> Any:
        machine = self.found("vm", path_of(call).removesuffix("/attachDetachDataDisks"))
        if machine.state(self.now()) != "Succeeded":
            raise error(409, "OperationNotAllowed", "The virtual machine isn't running yet.")
        for each in call.body.get("dataDisksToDetach", ()):
            disk = self.existing("disk", each["diskId"])
            if disk is None or self.holder(disk) is not machine:
                raise error(400, "InvalidParameter", f"{each['diskId']} isn't attached")
            disk.facts["machine"] = ""
        for each in call.body.get("dataDisksToAttach", ()):
            self._attached(machine, each)
        return Answer(202, None, self.operation(call, ATTACHING))

    def _attached(self, machine: Resource, given: Any) -> None:
        disk = self.existing("disk", given["diskId"])
        if disk is None:
            raise error(404, "NotFound", f"Disk {given['diskId']} is not found.")
        if self.holder(disk) is not None:
            raise error(409, "OperationNotAllowed", f"Disk {given['diskId']} is attached to another machine.")
        if disk.facts["zones"] != machine.facts["zones"] or disk.facts["location"] != machine.facts["location"]:
            raise error(400, "BadRequest", "The disk isn't in the machine's zone.")
        taken = {each.facts["lun"] for each in self.data_disks(machine)}
        free = [lun for lun in range(SIZES[machine.facts["size"]].disks) if lun not in taken]
        lun = given.get("lun", free[0] if free else -1)
        if lun not in free:
            raise error(
                409, "OperationNotAllowed", "The maximum number of data disks is attached, or the LUN is taken."
            )
        disk.facts.update(machine=machine.facts["path"], lun=lun, delete=given.get("deleteOption", "Detach"))

    def data_disks(self, machine: Resource) -> list[Resource]:
        path = machine.facts["path"]
        return [
            each for each in self.books.existing("disk") if each.facts["machine"] == path and not each.facts.get("os")
        ]

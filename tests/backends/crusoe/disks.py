"""The disks of the fake: the system's, which end with their machine, and data disks, which don't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from chalicelib.domain.instants import SECOND, Micros, iso
from tests.backends.fakes.books import GONE, Books, Resource
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import Refusal, answers

LONG_AFTER = 10**18
HOURS = 730  # of a month


class Disks:
    """A part of the fake."""

    making: Micros = 0  # how long it takes until a disk can be attached,
    attaching: Micros = 5 * SECOND  # and for each of these
    detaching: Micros = 5 * SECOND
    deleting: Micros = 5 * SECOND
    failing = ""  # why the next disk can't be made

    # What the rest of the fake has.
    now: Callable[[], Micros]
    books: Books
    found: Callable[[str, str], Resource]
    refused: Callable[..., Refusal]
    operation: Callable[..., Any]
    add: Callable[..., Resource]
    admit_name: Callable[[str, str], None]
    is_location: Callable[[str | None], bool]

    @answers("createDisk")
    def _create_disk(self, call: Call) -> Any:
        body = call.body
        if not self.is_location(body.get("location")) or "size" not in body:
            raise self.refused("invalid", "a disk has a location and a size")
        self.admit_name("disk", body["name"])
        made = self.new_disk(body["name"], body["location"], body["size"], kind=body.get("type", "persistent-ssd"))
        why, self.failing = self.failing, ""
        if why:
            made.goes(self.now(), (self.making, GONE))
        return self.operation(made, self.making, {"code": "failed", "message": why} if why else None)

    @answers("listDisks")
    def _disks(self, call: Call) -> Any:
        names = (("disk_ids", "id"), ("disk_names", "name"), ("location", "location"))
        wanted = {of: call.query[name] for name, of in names if name in call.query}
        data_only = call.query.get("exclude_os", False)
        shown = [self._held(each) for each in self.books.shown("disk") if not (data_only and each.facts["os"])]
        return {"items": [disk for disk in shown if all(disk[of] in values for of, values in wanted.items())]}

    @answers("getDisk")
    def _get_disk(self, call: Call) -> Any:
        return self._held(self.found("disk", call.path["disk_id"]))

    @answers("deleteDisk")
    def _delete_disk(self, call: Call) -> Any:
        disk = self.found("disk", call.path["disk_id"])
        if self._holders(disk, soon=True):
            raise self.refused("invalid", f"disk {disk.id} is busy")
        disk.goes(self.now(), (self.deleting, GONE))
        return self.operation(disk, self.deleting)

    @answers("updateInstanceAttachDisks")
    def _attach(self, call: Call) -> Any:
        machine = self.found("vm", call.path["vm_id"])
        if machine.state(self.now()) not in ("STATE_RUNNING", "STATE_STOPPED"):
            raise self.refused("invalid", f"{machine.id} isn't running")
        for each in call.body["attach_disks"]:
            self.admit_disk(each, machine.facts["location"])
        for each in call.body["attach_disks"]:
            self.holds(machine, each, self.now() + self.attaching)
        return self.operation(machine, self.attaching)

    @answers("updateInstanceDetachDisks")
    def _detach(self, call: Call) -> Any:
        machine = self.found("vm", call.path["vm_id"])
        for disk in call.body["detach_disks"]:
            held = [each for each in machine.facts["attachments"] if each["disk_id"] == disk and self._is_held(each)]
            if not held:
                raise self.refused("invalid", f"disk {disk} is not attached")
            held[0]["until"] = self.now() + self.detaching
        return self.operation(machine, self.detaching)

    # --- for machines ------------------------------------------------------------------------------------------------

    def admit_disk(self, attached: Any, location: str) -> None:
        disk = self.books.find("disk", attached["disk_id"])
        if disk is None or disk.facts["location"] != location:
            raise self.refused("invalid", f"no disk {attached['disk_id']} in {location}")
        if self.now() < disk.facts["ready"]:
            raise self.refused("invalid", f"disk {disk.id} is being created")
        modes = [each["mode"] for _, each in self._holders(disk, soon=True)]
        if "read-write" in modes or (modes and attached["mode"] == "read-write"):
            raise self.refused("invalid", f"disk {disk.id} is attached")

    def new_disk(
        self, name: str, location: str, size: str, *, os: bool = False, kind: str = "persistent-ssd"
    ) -> Resource:
        facts = {"location": location, "size": size, "os": os, "type": kind, "ready": self.now() + self.making}
        return self.add("disk", [(0, "there")], {}, name=name, **facts)

    def holds(self, machine: Resource, attached: Any, since: Micros) -> None:
        machine.facts["attachments"].append({**attached, "since": since, "until": LONG_AFTER})

    def disks_of(self, machine: Resource) -> list[Any]:
        held = {each["disk_id"]: each for each in machine.facts["attachments"] if self._is_held(each)}
        found = (each for each in self.books.existing("disk") if each.id in held)
        return [{**self._shown(disk), **_attachment(held[disk.id])} for disk in found]

    def disks_billed(self, month: float) -> float:
        """Dollars an hour."""
        data = (each for each in self.books.existing("disk") if not each.facts["os"])
        return sum(int(each.facts["size"].removesuffix("GiB")) * month / HOURS for each in data)

    def _is_held(self, attachment: Any, *, soon: bool = False) -> bool:
        return (soon or bool(attachment["since"] <= self.now())) and bool(self.now() < attachment["until"])

    def _holders(self, disk: Resource, *, soon: bool = False) -> list[tuple[Resource, Any]]:
        return list(self._all_holders(disk, soon))

    def _all_holders(self, disk: Resource, soon: bool) -> Iterator[tuple[Resource, Any]]:
        for machine in self.books.existing("vm"):
            for each in machine.facts["attachments"]:
                if each["disk_id"] == disk.id and self._is_held(each, soon=soon):
                    yield machine, each

    def _held(self, disk: Resource) -> Any:
        attached = [{"vm_id": machine.id, **_attachment(each)} for machine, each in self._holders(disk)]
        return {**self._shown(disk), "attached_to": attached}

    def _shown(self, disk: Resource) -> Any:
        facts, at = disk.facts, iso(disk.born)
        rest = {"id": disk.id, "block_size": 4096, "serial_number": f"S{disk.number:08}"}
        kept = {name: facts[name] for name in ("name", "location", "size", "type")}
        return {**kept, **rest, "created_at": at, "updated_at": at}


def _attachment(each: Any) -> Any:
    return {"mode": each["mode"], "attachment_type": each["attachment_type"]}

"""Capacity reservation groups, and what they have reserved. A subscription's owner makes them, and not the backend."""

from __future__ import annotations

from typing import Any

from tests.backends.azure.fake.api import SUBSCRIPTION, Part, error, path_of
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import answers

RESOURCE_GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/Training"
EARLIER = {"scheduled": "Committed"}


class Reservations(Part):
    def reserve(self, location: str, zone: str, size: str, machines: int, state: str = "active", **has: Any) -> str:
        """`has`: properties of the group. Its name, as people write it."""
        number = len(self.books.made("capacity group"))
        path = f"{RESOURCE_GROUP}/providers/Microsoft.Compute/capacityReservationGroups/Reserved-{number}"
        if state != "cancelled":
            zones = {"zones": [zone]} if zone else {}
            self.add("capacity group", path, (0, "there"), body={"location": location, **zones}, has=has)
            self.add_member(path, location, zone, size, machines, state)
        return f"training/reserved-{number}"

    def add_member(self, group: str, location: str, zone: str, size: str, machines: int, state: str = "active") -> None:
        body = {
            "location": location,
            "sku": {"name": size, "capacity": machines},
            **({"zones": [zone]} if zone else {}),
        }
        made = "Failed" if state == "expired" else "Succeeded"
        path = f"{group}/capacityReservations/{size}-{zone}"
        self.add("capacity", path, (0, made), body=body, group=group.lower(), later=EARLIER.get(state, ""))
        self.script.limits[counter(path)] = machines

    @answers("CapacityReservationGroups_list_by_subscription")
    def _list_groups(self, call: Call) -> Any:
        if call.query.get("$expand") or call.query.get("resourceIdsOnly"):
            raise error(400, "BadRequest", "this fake shows groups as they are")
        return self.listing(call, self.books.shown("capacity group"), self._shown_group)

    def _shown_group(self, made: Resource) -> Any:
        path = made.facts["path"]
        return {**made.facts["body"], "id": path, "name": path.rpartition("/")[2], "properties": made.facts["has"]}

    @answers("CapacityReservations_list_by_capacity_reservation_group")
    def _list_members(self, call: Call) -> Any:
        group = path_of(call).rpartition("/")[0]
        if self.existing("capacity group", group) is None:
            raise error(404, "ResourceNotFound", f"{group} was not found.")
        found = (each for each in self.books.shown("capacity") if each.facts["group"] == group.lower())
        return self.listing(call, found, lambda made: self._member(made, call.query.get("$expand") == "instanceView"))

    def _member(self, made: Resource, states: bool) -> Any:
        path = made.facts["path"]
        has: dict[str, Any] = {"provisioningState": made.state(self.now())}
        if states:
            used = [{"id": each.facts["path"]} for each in self.books.existing("vm") if counter(path) in each.counts]
            use = {"currentCapacity": made.facts["body"]["sku"]["capacity"], "virtualMachinesAllocated": used}
            later = {"reservationStateInfo": {"reservationState": made.facts["later"]}} if made.facts["later"] else {}
            has["instanceView"] = {"utilizationInfo": use, **later}
        return {**made.facts["body"], "id": path, "name": path.rpartition("/")[2], "properties": has}

    def dissolve(self, name: str) -> None:
        """Deletes a group, and what is in it."""
        for each in [*self.books.existing("capacity"), *self.books.existing("capacity group")]:
            if f"/{name.rpartition('/')[2]}" in each.facts["path"].lower():
                each.goes(self.now(), (0, GONE))

    def from_reservation(self, body: Any) -> dict[str, int] | None:
        """What a machine takes of the group that it names; None: it isn't in one. It isn't refused if there is no room:
        it is where other machines are then."""
        has = body["properties"]
        named = (has.get("capacityReservation") or {}).get("capacityReservationGroup")
        if named is None:
            return None
        if has.get("priority") == "Spot" or "proximityPlacementGroup" in has or "availabilitySet" in has:
            raise error(400, "BadRequest", "spot machines and those of groups can't be in a capacity reservation")
        if self.existing("capacity group", named["id"]) is None:
            raise error(404, "ResourceNotFound", f"{named['id']} was not found.")
        for each in self.books.existing("capacity"):
            of = each.facts["body"]
            if each.facts["group"] != named["id"].lower() or each.facts["later"]:
                continue
            if (of["sku"]["name"], of.get("zones")) == (has["hardwareProfile"]["vmSize"], body.get("zones")):
                wanted = {counter(each.facts["path"]): 1}
                return None if self.books.over(wanted, self.script.limits) else wanted
        raise error(409, "OverconstrainedAllocationRequest", "the group has no such size in that zone")


def counter(path: str) -> str:
    return f"reserved in {path.lower()}"

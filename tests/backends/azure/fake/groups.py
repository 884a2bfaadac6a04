"""Availability sets and proximity placement groups: what keeps machines close together."""

from __future__ import annotations

from typing import Any

from tests.backends.azure.fake.api import Part, error, path_of
from tests.backends.azure.fake.shop import LOCATIONS, SIZES, sold_in
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Answer, Call
from tests.backends.fakes.server import answers


class Groups(Part):
    @answers("AvailabilitySets_create_or_update", "ProximityPlacementGroups_create_or_update")
    def _create_set(self, call: Call) -> Any:
        path, body = path_of(call), call.body
        kind, has = _kind(path), body.get("properties") or {}
        self.open_group(path)
        self.check_tags(body)
        if body["location"] not in LOCATIONS:
            raise error(400, "LocationNotAvailableForResourceType", f"no location {body['location']}")
        sizes = (has.get("intent") or {}).get("vmSizes", [])
        zones = body.get("zones", [])
        if zones and (not sizes or len(zones) > 1):
            raise error(400, "BadRequest", "one zone can be set, together with an intent")
        for size in sizes:
            if size not in SIZES or (zones and zones[0] not in sold_in(size, body["location"])):
                raise error(409, "OverconstrainedAllocationRequest", f"{size} isn't to be had in zone {zones}")
        if kind == "availability" and body.get("sku", {}).get("name") != "Aligned":
            raise error(400, "InvalidParameter", "machines with managed disks need an aligned set")
        made = self.existing(kind, path)
        if made is None:
            made = self.add(kind, path, (0, "Succeeded"), lag=self.script.lag, body=body)
            return Answer(200 if kind == "availability" else 201, self._set(made))
        made.facts["body"] = body
        return self._set(made)

    @answers("AvailabilitySets_get", "ProximityPlacementGroups_get")
    def _get_set(self, call: Call) -> Any:
        call.query.get("includeColocationStatus")
        return self._set(self.found(_kind(path_of(call)), path_of(call)))

    @answers("AvailabilitySets_list", "ProximityPlacementGroups_list_by_resource_group")
    def _list_sets(self, call: Call) -> Any:
        self.in_group(path_of(call))
        prefix = path_of(call).lower() + "/"
        shown = self.books.shown(_kind(path_of(call)))
        return self.listing(call, (e for e in shown if e.facts["path"].lower().startswith(prefix)), self._set)

    @answers("AvailabilitySets_delete", "ProximityPlacementGroups_delete")
    def _delete_set(self, call: Call) -> Any:
        path = path_of(call)
        made = self.existing(_kind(path), path)
        if made is None:
            if _kind(path) == "availability":
                return Answer(204)
            raise error(404, "ResourceNotFound", f"{path} was not found.")
        if self._members(made):
            raise error(409, "OperationNotAllowed", f"{path} cannot be deleted: it has virtual machines.")
        made.goes(self.now(), (0, GONE))
        return Answer(200)

    def _members(self, made: Resource) -> list[Resource]:
        path = made.facts["path"].lower()
        return [each for each in self.books.existing("vm") if each.facts["together"].lower() == path]

    def _set(self, made: Resource) -> Any:
        path, body = made.facts["path"], made.facts["body"]
        has = {
            **(body.get("properties") or {}),
            "virtualMachines": [{"id": e.facts["path"]} for e in self._members(made)],
        }
        return {**body, "id": path, "name": path.rpartition("/")[2], "properties": has}


def _kind(path: str) -> str:
    return "availability" if "availabilitySets" in path else "proximity"

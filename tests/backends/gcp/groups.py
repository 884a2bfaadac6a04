"""Placement policies, and reservations."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.instants import SECOND
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import answers
from tests.backends.gcp import shop
from tests.backends.gcp.disks import Disks
from tests.backends.gcp.instances import NAME
from tests.backends.gcp.operations import PROJECT, ROOT, invalid, not_found, refusal
from tests.backends.gcp.places import ZONES

STATES = {"active": "READY", "scheduled": "CREATING", "expired": "DELETING", "cancelled": "INVALID"}


class Groups(Disks):
    @answers("resourcePolicies.insert")
    def _insert_policy(self, call: Call) -> Any:
        region, body = call.path["region"], call.body
        if region not in shop.REGIONS:
            raise not_found(f"regions/{region}")
        if again := self.replayed(call, body):
            return self.shown_operation(again)
        if not NAME.fullmatch(body.get("name", "")):
            raise invalid("name", "Must be a match of regex")
        if body.get("groupPlacementPolicy", {}).get("collocation") != "COLLOCATED":
            raise invalid("groupPlacementPolicy", "the test wants a compact one")
        target = f"resourcePolicies/{body['name']}"
        if self._policy(region, body["name"]):
            path = f"projects/{PROJECT}/regions/{region}/{target}"
            raise refusal(409, "alreadyExists", f"The resource '{path}' already exists")
        self.books.add("policy", (0, "CREATING"), (2 * SECOND, "READY"), region=region, name=body["name"], body=body)
        return self.shown_operation(self.operation("insert", f"regions/{region}", target, 2, call=call, sent=body))

    def _policy(self, region: str, name: str) -> Resource | None:
        found = (each for each in self.books.existing("policy") if each.facts["name"] == name)
        return next((each for each in found if each.facts["region"] == region), None)

    @answers("resourcePolicies.get")
    def _get_policy(self, call: Call) -> Any:
        return self._shown_policy(self._known_policy(call))

    def _known_policy(self, call: Call) -> Resource:
        found = self._policy(call.path["region"], call.path["resourcePolicy"])
        if found is None:
            raise not_found(f"regions/{call.path['region']}/resourcePolicies/{call.path['resourcePolicy']}")
        return found

    @answers("resourcePolicies.delete")
    def _delete_policy(self, call: Call) -> Any:
        policy = self._known_policy(call)
        name, region = policy.facts["name"], policy.facts["region"]
        if users := self.in_policy(name):
            text = f"The resource_policy resource '{name}' is already being used by '{users[0].facts['name']}'"
            raise refusal(400, "resourceInUseByAnotherResource", text)
        policy.goes(self.now(), (0, "DELETING"), (3 * SECOND, GONE))
        return self.shown_operation(self.operation("delete", f"regions/{region}", f"resourcePolicies/{name}", 3))

    @answers("resourcePolicies.aggregatedList")
    def _list_policies(self, call: Call) -> Any:
        scopes = [f"regions/{region}" for region in shop.REGIONS]
        return self.by_scope(call, self.books.existing("policy"), self._shown_policy, "resourcePolicies", scopes)

    def _shown_policy(self, made: Resource) -> Any:
        body, region = made.facts["body"], made.facts["region"]
        shown = {"id": str(made.number), "region": f"{ROOT}/regions/{region}", "status": str(made.state(self.now()))}
        return {**body, **shown}

    # --- reservations ------------------------------------------------------------------------------------------------

    def reserve(self, zone: str, kind: str, count: int, state: str = "active", **more: Any) -> str:
        of = {"machineType": kind}
        if ssds := shop.TYPES[kind].ssds:
            of["localSsds"] = [{"diskSizeGb": "375", "interface": "NVME"}] * ssds  # type: ignore[assignment]
        body = {
            "specificReservationRequired": True,
            "specificReservation": {"count": str(count), "instanceProperties": of},
        }
        number = len(list(self.books.existing("reservation")))
        name = f"reserved-{number}"
        self.books.add("reservation", (0, STATES[state]), zone=zone, name=name, body={**body, **more})
        return name

    def reserve_ahead(
        self, zone: str, kind: str, begins: str, ends: str, status: str = "COMMITTED", **more: Any
    ) -> str:
        """A future reservation; `fulfil` begins it."""
        number = len(list(self.books.existing("future")))
        body = {
            "specificReservationRequired": True,
            "specificSkuProperties": {"totalCount": "2", "instanceProperties": {"machineType": kind}},
            "timeWindow": {"startTime": begins, "endTime": ends},
            "status": {"procurementStatus": status},
        }
        self.books.add("future", (0, "READY"), zone=zone, name=f"ahead-{number}", body={**body, **more})
        return f"ahead-{number}"

    def fulfil(self, name: str, **more: Any) -> str:
        """The reservation that is made of it."""
        future = next(each for each in self.books.existing("future") if each.facts["name"] == name)
        zone, kind = future.facts["zone"], future.facts["body"]["specificSkuProperties"]["instanceProperties"]
        made = self.reserve(zone, kind["machineType"], 2, **more)
        (row,) = (each for each in self.books.existing("reservation") if each.facts["name"] == made)
        row.facts["bound"] = future.facts["body"].get("reservationMode") == "CALENDAR"
        urls = [f"{ROOT}/zones/{zone}/reservations/{made}"]
        future.facts["body"]["status"] = {"procurementStatus": "FULFILLED", "autoCreatedReservations": urls}
        return made

    @answers("futureReservations.aggregatedList")
    def _list_futures(self, call: Call) -> Any:
        scopes = [f"zones/{zone}" for zone in ZONES]
        return self.by_scope(call, self.books.existing("future"), self._future, "futureReservations", scopes)

    def _future(self, made: Resource) -> Any:
        return {**made.facts["body"], "name": made.facts["name"], "zone": f"{ROOT}/zones/{made.facts['zone']}"}

    @answers("reservations.aggregatedList")
    def _list_reservations(self, call: Call) -> Any:
        scopes = [f"zones/{zone}" for zone in ZONES]
        return self.by_scope(call, self.books.existing("reservation"), self._reservation, "reservations", scopes)

    def _reservation(self, made: Resource) -> Any:
        body, name = made.facts["body"], made.facts["name"]
        of = {**body["specificReservation"], "inUseCount": str(self.in_use(name))}
        of["assuredCount"] = of["count"]
        status = str(made.state(self.now()))
        zone = f"{ROOT}/zones/{made.facts['zone']}"
        return {**body, "name": name, "zone": zone, "status": status, "specificReservation": of}

"""Machines, with the card, address and disk that are made along with each before anybody looks for room.

A creation is answered at once and goes on. Room for spot machines is looked for before the answer, and for others after
it. A machine that failed stays, with all that was made, until it is deleted.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from chalicelib.domain.instants import SECOND, Micros, iso
from tests.backends.azure.fake.api import Part, error, path_of
from tests.backends.azure.fake.disks import Disks
from tests.backends.azure.fake.network import Networks
from tests.backends.azure.fake.reservations import Reservations
from tests.backends.azure.fake.shop import LOCATIONS, SIZES, ZONES, Shop, Sold, quota, sold_in, stock
from tests.backends.fakes.books import GONE, Resource, Step
from tests.backends.fakes.script import Answer, Call
from tests.backends.fakes.server import answers

IMAGES = {("microsoft-dsvm", "ubuntu-hpc", "2204"): 64, ("canonical", "0001-com-ubuntu-server-jammy", "22_04-lts"): 30}
TOLD: Micros = 30 * SECOND  # between a spot machine's notice and its end
NO_ROOM = "Allocation failed. We do not have sufficient capacity for the requested VM size in this region."


class Machines(Disks, Networks, Reservations, Shop, Part):
    start: Micros = 40 * SECOND
    fails_after: Micros = 20 * SECOND
    end: Micros = 15 * SECOND
    late_spot = False  # is room for spot machines looked for after the answer, too?
    vanishing = False  # does a spot machine without room go without a word?
    why_not = ""  # what the next creation fails with, after its answer
    survives: frozenset[str] = frozenset()  # of a machine's parts, those that stay when it is gone
    untimed = False  # does the answer to a creation lack its time?
    stuck = False  # no deletion of a machine ends

    # --- create ------------------------------------------------------------------------------------------------------

    @answers("VirtualMachines_create_or_update")
    def _create(self, call: Call) -> Any:
        path, body = path_of(call), call.body
        made = self.existing("vm", path)
        if made is not None:
            return self._again(call, made, body)
        if call.headers.get("if-match"):
            raise error(412, "PreconditionFailed", "there is no such machine")
        self.open_group(path)
        sold = self._admit(path, body)
        location, size = body["location"], body["properties"]["hardwareProfile"]["vmSize"]
        spot, zone = body["properties"].get("priority") == "Spot", (body.get("zones") or [""])[0]
        counts = self.from_reservation(body)
        if counts is None:
            names = ("lowPriorityCores",) if spot else (sold.family, "cores")
            counts = {quota(location, name): sold.vcpus for name in names}
            self.over_quota(location, counts)
            counts[stock(location, zone, size, spot=spot)] = 1
        short = self.books.over(counts, self.script.limits) is not None
        if short and spot and not (self.late_spot or self.vanishing):
            raise error(409, "SkuNotAvailable", f"The requested size for resource '{path}' is currently not available.")
        failure = self._failure(body, zone) if short or self.why_not else None
        made = self._made(path, body, {} if short else counts, failure)
        shown = self._machine(made)
        if self.untimed:
            del shown["properties"]["timeCreated"]
        return Answer(201, shown, self.operation(call, self._takes(failure), failure))

    def _takes(self, failure: Any) -> Micros:
        return self.fails_after if failure else self.start

    def _failure(self, body: Any, zone: str) -> Any:
        code, self.why_not = self.why_not or ("ZonalAllocationFailed" if zone else "AllocationFailed"), ""
        reference = body["properties"]["storageProfile"]["imageReference"]
        text = f"The image {reference} was not found." if code == "ImageNotFound" else NO_ROOM
        return {"code": code, "message": text}

    def _again(self, call: Call, made: Resource, body: Any) -> Any:
        if call.headers.get("if-none-match"):
            raise error(412, "PreconditionFailed", "The condition 'If-None-Match' for the resource is not satisfied.")
        for name in ("location", "zones"):
            if made.facts["body"].get(name) != body.get(name):
                raise error(409, "PropertyChangeNotAllowed", f"Changing property '{name}' is not allowed.")
        if made.facts["body"]["properties"] != body["properties"]:
            raise error(409, "PropertyChangeNotAllowed", "Changing property 'osProfile.customData' is not allowed.")
        return self._machine(made)

    def _made(self, path: str, body: Any, counts: Any, failure: Any) -> Resource:
        location, has, zones = body["location"], body["properties"], body.get("zones", [])
        facts = {"body": body, "location": location, "zones": zones, "size": has["hardwareProfile"]["vmSize"]}
        together = (has.get("availabilitySet") or has.get("proximityPlacementGroup") or {}).get("id", "")
        steps = [(0, "Creating"), (self.start, "Succeeded")]
        if failure:
            spot = has.get("priority") == "Spot"
            steps = [(0, "Creating"), (self.fails_after, GONE if spot and self.vanishing else "Failed")]
        lag = self.script.lag
        made = self.add("vm", path, *steps, lag=lag, counts=counts, **facts, together=together, failure=failure)
        disk = has["storageProfile"]["osDisk"]
        group = path.partition("/providers/")[0]
        self.with_disk(
            f"{group}/providers/Microsoft.Compute/disks/{disk['name']}",
            location,
            zones,
            disk["diskSizeGB"],
            machine=path,
            os=True,
            delete=disk.get("deleteOption", "Detach"),
            tags={},
        )
        self._made_card(made, group, has["networkProfile"]["networkInterfaceConfigurations"][0])
        if failure and not made.state(self.now() + self.fails_after):
            self._goes(made, self.fails_after)
        return made

    def _made_card(self, machine: Resource, group: str, given: Any) -> None:
        has, network = given["properties"], f"{group}/providers/Microsoft.Network"
        inside = has["ipConfigurations"][0]["properties"]
        path, location = f"{network}/networkInterfaces/{given['name']}-{machine.number:08x}", machine.facts["location"]
        public, address = inside.get("publicIPAddressConfiguration"), ""
        if public is not None:
            address = f"{network}/publicIPAddresses/{public['name']}-{machine.number:08x}"
        self.with_card(
            path,
            location,
            inside["subnet"]["id"],
            (has.get("networkSecurityGroup") or {}).get("id", ""),
            machine=machine.facts["path"],
            address=address,
            tags=given.get("tags", {}),
            delete=has.get("deleteOption", "Detach"),
        )
        if public is not None:
            delete = public["properties"].get("deleteOption", "Detach")
            self.with_address(address, location, path, tags=public.get("tags", {}), delete=delete)
        machine.facts["card"] = path

    # --- what a request must be --------------------------------------------------------------------------------------

    def _admit(self, path: str, body: Any) -> Sold:
        name, has, location = path.rpartition("/")[2], body["properties"], body["location"]
        self.check_tags(body)
        if not re.fullmatch(r"[A-Za-z0-9][-\w.]{0,62}[A-Za-z0-9_]", name) or location not in LOCATIONS:
            raise error(400, "InvalidParameter", f"no machine {name} in {location}")
        size = (has.get("hardwareProfile") or {}).get("vmSize", "")
        sold = SIZES.get(size)
        if sold is None:
            raise error(400, "InvalidParameter", f"The value {size} provided for the VM size is not valid.")
        self._admit_place(body, size, sold)
        self._admit_market(has, sold)
        self._admit_system(has)
        self._admit_storage(has)
        self._admit_network(has, location)
        for identity in (body.get("identity") or {}).get("userAssignedIdentities", {}):
            if self.existing("identity", identity) is None:
                raise error(400, "FailedIdentityOperation", f"Resource '{identity}' was not found.")
        return sold

    def _admit_place(self, body: Any, size: str, sold: Sold) -> None:
        location, zones, has = body["location"], body.get("zones", []), body["properties"]
        if len(zones) > 1 or not set(zones) <= set(ZONES[location]):
            raise error(400, "InvalidParameter", f"no zones {zones} in {location}")
        barred = self.restrictions.get((size, location), [])
        if zones and zones[0] not in sold_in(size, location):
            barred = [{"type": "Zone", "values": zones}]
        for each in barred:
            if each["type"] == "Location" or set(zones) & set(each.get("values", ())):
                raise error(
                    409, "SkuNotAvailable", f"The requested size {size} is currently not available in {location}."
                )
        for field, kind in (("availabilitySet", "availability"), ("proximityPlacementGroup", "proximity")):
            if field not in has:
                continue
            group = self.existing(kind, has[field]["id"])
            if group is None:
                raise error(404, "ResourceNotFound", f"{has[field]['id']} was not found.")
            if group.facts["body"]["location"] != location:
                raise error(400, "InvalidParameter", "the group is in another location")
            if field == "availabilitySet" and zones:
                raise error(400, "BadRequest", "zones and availability sets exclude each other")
            if field == "availabilitySet" and has.get("priority") == "Spot":
                raise error(409, "AzureSpotVMNotSupportedInAvailabilitySet", "no spot machines in availability sets")

    def _admit_market(self, has: Any, sold: Sold) -> None:
        if has.get("priority", "Regular") == "Regular":
            if "evictionPolicy" in has or "billingProfile" in has:
                text = "Eviction policy can be set only on Azure Spot Virtual Machines."
                raise error(400, "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines", text)
        elif not sold.spot:
            raise error(400, "AzureSpotIsNotSupportedForThisVMSize", "this size isn't sold as spot")
        elif has.get("billingProfile", {}).get("maxPrice", -1) != -1:
            raise error(400, "MaxPriceValueInvalid", "this fake knows no bids")

    def _admit_system(self, has: Any) -> None:
        system = has["osProfile"]
        keys = system.get("linuxConfiguration", {}).get("ssh", {}).get("publicKeys", [])
        if not system.get("linuxConfiguration", {}).get("disablePasswordAuthentication") or not keys:
            raise error(400, "InvalidParameter", "an administrator has a password or a key")
        if any(not re.fullmatch(r"ssh-(rsa|ed25519) [A-Za-z0-9+/]+=*", each["keyData"]) for each in keys):
            raise error(400, "InvalidParameter", "no such key")
        if system["adminUsername"] in ("root", "admin") or not 0 < len(system["computerName"]) <= 64:
            raise error(400, "InvalidParameter", "no such name")
        for text in (system.get("customData", ""), has.get("userData", "")):
            if len(base64.b64decode(text, validate=True)) > 65_535:
                raise error(400, "InvalidParameter", "Custom data in OSProfile must be at most 65535 bytes")

    def _admit_storage(self, has: Any) -> None:
        storage = has["storageProfile"]
        image, disk = storage["imageReference"], storage["osDisk"]
        least = IMAGES.get((image.get("publisher"), image.get("offer"), image.get("sku")))
        if least is None or image.get("version") != "latest":
            raise error(404, "PlatformImageNotFound", f"The platform image {image} is not available.")
        if not least <= disk.get("diskSizeGB", 0) <= 4095 or disk["createOption"] != "FromImage":
            raise error(400, "InvalidParameter", f"the disk must have {least} to 4095 GB")

    def _admit_network(self, has: Any, location: str) -> None:
        network = has["networkProfile"]
        given = network.get("networkInterfaceConfigurations") or []
        if "networkApiVersion" not in network or len(given) != 1:
            raise error(400, "InvalidParameter", "one network card with networkApiVersion is needed")
        card = given[0]["properties"]
        if not re.fullmatch(r"[A-Za-z0-9][-\w.]{0,70}", given[0]["name"]) or not card.get("primary"):
            raise error(400, "InvalidParameter", "no such name, or no primary card")
        size = has["hardwareProfile"]["vmSize"]
        if card.get("enableAcceleratedNetworking") and size == "Standard_B2s":
            raise error(400, "VMSizeIsNotPermittedToEnableAcceleratedNetworking", f"{size} can't have it")
        for inside in card["ipConfigurations"]:
            self.usable(inside["properties"]["subnet"]["id"], location)
            public = inside["properties"].get("publicIPAddressConfiguration")
            method = ((public or {}).get("properties") or {}).get("publicIPAllocationMethod")
            if public is not None and (public.get("sku", {}).get("name") != "Standard" or method != "Static"):
                raise error(400, "PublicIPCountLimitReached", "basic addresses are retired")
        if "networkSecurityGroup" in card:
            self.usable(card["networkSecurityGroup"]["id"], location)

    # --- read --------------------------------------------------------------------------------------------------------

    @answers("VirtualMachines_get")
    def _get(self, call: Call) -> Any:
        made = self.found("vm", path_of(call))
        if made.visible > self.now():
            raise error(404, "ResourceNotFound", f"The Resource '{path_of(call)}' was not found.")
        return self._machine(made, call.query.get("$expand") == "instanceView")

    @answers("VirtualMachines_list")
    def _list(self, call: Call) -> Any:
        if call.query.get("$filter") or call.query.get("$expand"):
            raise error(400, "BadRequest", "this fake filters nothing, and states are for one machine")
        self.in_group(path_of(call))
        prefix = path_of(call).lower() + "/"
        shown = (each for each in self.books.shown("vm") if each.facts["path"].lower().startswith(prefix))
        return self.listing(call, shown, self._machine)

    @answers("VirtualMachines_list_all")
    def _list_all(self, call: Call) -> Any:
        if call.query.get("$filter") or call.query.get("$expand"):
            raise error(400, "BadRequest", "this fake filters nothing, and states are for one machine")
        states = call.query.get("statusOnly") == "true"
        return self.listing(call, self.books.shown("vm"), self._status if states else self._machine)

    def _status(self, made: Resource) -> Any:
        whole = self._machine(made, states=True)
        has = {name: whole["properties"][name] for name in ("provisioningState", "vmId", "instanceView")}
        return {name: whole[name] for name in ("id", "name", "location")} | {"properties": has}

    def _machine(self, made: Resource, states: bool = False) -> Any:
        path, body, state = made.facts["path"], made.facts["body"], made.state(self.now())
        has = {**body["properties"], "vmId": made.id, "timeCreated": iso(made.born), "provisioningState": state}
        has["osProfile"] = {name: each for name, each in has["osProfile"].items() if name != "customData"}
        has["networkProfile"] = {"networkInterfaces": [{"id": made.facts["card"]}]} if "card" in made.facts else {}
        disks = self.data_disks(made)
        attached = [
            {"lun": e.facts["lun"], "createOption": "Attach", "managedDisk": {"id": e.facts["path"]}} for e in disks
        ]
        has["storageProfile"] = {**has["storageProfile"], "dataDisks": attached}
        if states:
            has["instanceView"] = {"statuses": list(self._statuses(made))}
        return {**body, "id": path, "name": path.rpartition("/")[2], "properties": has}

    def _statuses(self, made: Resource) -> Iterator[Any]:
        state, failure = made.state(self.now()), made.facts["failure"]
        if state == "Failed":
            code = f"ProvisioningState/failed/{failure['code']}"
            yield {"code": code, "level": "Error", "message": failure["message"], "time": iso(self.now())}
            return
        yield {"code": f"ProvisioningState/{str(state).lower()}", "level": "Info"}
        power = made.facts.get("power") or {"Creating": "starting", "Succeeded": "running"}.get(str(state))
        if power:
            yield {"code": f"PowerState/{power}", "level": "Info"}

    # --- the end -----------------------------------------------------------------------------------------------------

    @answers("VirtualMachines_delete")
    def _delete(self, call: Call) -> Any:
        path = path_of(call)
        call.query.get("forceDeletion")
        self.in_group(path)
        made = self.existing("vm", path)
        if made is None:
            return Answer(204)
        if made.state(self.now()) != "Deleting":
            made.goes(self.now(), (0, "Deleting"))
            if not self.stuck:
                self._goes(made, self.end)
        return Answer(202, None, self.operation(call, self.end))

    def _goes(self, made: Resource, after: Micros, *before: Step) -> None:
        """With whatever is to go with it."""
        now, path = self.now(), made.facts["path"]
        made.goes(now, *(((0, "Deleting"),) if made.state(now) == "Deleting" else ()), *before, (after, GONE))
        card = self.existing("nic", made.facts.get("card", ""))
        address = self.existing("address", card.facts["address"]) if card else None
        os = [each for each in self.books.existing("disk") if each.facts["machine"] == path and each.facts.get("os")]
        for each in (card, address, *os, *self.data_disks(made)):
            if each is None:
                continue
            if each.facts.get("delete") == "Delete" and each.kind not in self.survives:
                each.goes(now, (after, GONE))
            elif each.kind == "nic":
                each.facts["reserved_until"] = now + after + self.reserved

    @answers("VirtualMachines_simulate_eviction")
    def _evict(self, call: Call) -> Any:
        self.evict(self.found("vm", path_of(call).removesuffix("/simulateEviction")))
        return Answer(204)

    def evict(self, made: Resource) -> None:
        if made.facts["body"]["properties"].get("evictionPolicy") == "Delete":
            self._goes(made, TOLD + self.end, (TOLD, "Deleting"))
        else:
            made.facts["power"] = "deallocated"

    def lose(self, made: Resource) -> None:
        self._goes(made, 0)

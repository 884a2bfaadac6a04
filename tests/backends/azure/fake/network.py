"""Networks, security groups, network cards and addresses. What something else uses can't be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from tests.backends.azure.fake.api import Part, error, path_of
from tests.backends.azure.fake.shop import LOCATIONS
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Answer, Call
from tests.backends.fakes.server import answers

RESERVED: Micros = 3 * MINUTE  # how long a failed machine's card refuses to go, where a test wants that


class Networks(Part):
    settling: Micros = 0  # until a new network or group can be used
    reserved: Micros = 0  # until the card of a machine that is gone can be deleted

    # --- networks ----------------------------------------------------------------------------------------------------

    @answers("VirtualNetworks_create_or_update", "NetworkSecurityGroups_create_or_update")
    def _create_network(self, call: Call) -> Any:
        path, body = path_of(call), call.body
        kind = "network" if "virtualNetworks" in path else "security"
        self.open_group(path)
        self.check_tags(body)
        if body.get("location") not in LOCATIONS:
            raise error(400, "LocationNotAvailableForResourceType", f"no location {body.get('location')}")
        made = self.existing(kind, path)
        if made is None:
            made = self.add(kind, path, (0, "Updating"), (self.settling, "Succeeded"), body=body)
            return Answer(201, self._network(made))
        left = {each["name"] for each in _subnets(body)}
        for subnet in _subnets(made.facts["body"]):
            if subnet["name"] not in left:
                self._refuse_used(f"{path}/subnets/{subnet['name']}", "InUseSubnetCannotBeDeleted")
        made.facts["body"] = body
        return self._network(made)

    @answers("VirtualNetworks_get", "NetworkSecurityGroups_get")
    def _get_network(self, call: Call) -> Any:
        if call.query.get("$expand"):
            raise error(400, "BadRequest", "nothing is expanded here")
        path = path_of(call)
        return self._network(self.found("network" if "virtualNetworks" in path else "security", path))

    @answers("VirtualNetworks_delete", "NetworkSecurityGroups_delete", "Subnets_delete")
    def _delete_network(self, call: Call) -> Any:
        path = path_of(call)
        code = "InUseNetworkSecurityGroupCannotBeDeleted" if "SecurityGroups" in path else "InUseSubnetCannotBeDeleted"
        self._refuse_used(path, code)
        if "/subnets/" in path:
            network = self.found("network", path.partition("/subnets/")[0])
            name = path.rpartition("/")[2]
            inside = [each for each in _subnets(network.facts["body"]) if each["name"] != name]
            network.facts["body"]["properties"]["subnets"] = inside
        elif made := (self.existing("network", path) or self.existing("security", path)):
            made.goes(self.now(), (0, GONE))
        return Answer(204)

    @answers("Subnets_get")
    def _get_subnet(self, call: Call) -> Any:
        call.query.get("$expand")
        return self.subnet(path_of(call))

    def subnet(self, path: str) -> Any:
        network = self.found("network", path.partition("/subnets/")[0])
        for each in self._network(network)["properties"]["subnets"]:
            if each["id"].lower() == path.lower():
                return each
        raise error(404, "NotFound", f"Resource {path} not found.")

    def with_network(self, path: str, location: str, subnets: dict[str, Any], **has: Any) -> None:
        """One of somebody's own. `subnets`: their properties by name."""
        inside = [
            {"name": name, "properties": {"addressPrefix": "10.9.0.0/24", **own}} for name, own in subnets.items()
        ]
        body = {"location": location, "properties": {"subnets": inside, **has}}
        self.add("network", path, (0, "Succeeded"), body=body)

    def _network(self, made: Resource) -> Any:
        path, body = made.facts["path"], made.facts["body"]
        has = {**body.get("properties", {}), "provisioningState": made.state(self.now())}
        if made.kind == "network":
            has["subnets"] = [{**each, "id": f"{path}/subnets/{each['name']}"} for each in _subnets(body)]
        return {**body, "id": path, "name": path.rpartition("/")[2], "properties": has}

    def _refuse_used(self, path: str, code: str) -> None:
        for card in self.books.existing("nic"):
            used = (card.facts["subnet"], card.facts["group"])
            if any(each.lower() == path.lower() or each.lower().startswith(f"{path.lower()}/") for each in used):
                raise error(400, code, f"{path.rpartition('/')[2]} is in use by {card.facts['path']}")

    def usable(self, path: str, location: str) -> None:
        """A network or group, for something that is created there."""
        made = self.existing("network", path.partition("/subnets/")[0]) or self.existing("security", path)
        if made is None:
            raise error(400, "InvalidResourceReference", f"Resource {path} referenced was not found.")
        if "/subnets/" in path:
            self.subnet(path)
        if made.facts["body"]["location"] != location:
            raise error(400, "InvalidResourceReference", f"Resource {path} is in another location.")
        if made.state(self.now()) != "Succeeded":
            text = f"Cannot proceed with operation because resource {path} is not in Succeeded state."
            raise error(409, "ReferencedResourceNotProvisioned", text)

    # --- cards and addresses -----------------------------------------------------------------------------------------

    def with_card(self, path: str, location: str, subnet: str, group: str, **facts: Any) -> Resource:
        lag, number = self.script.lag, sum(1 for _ in self.books.existing("nic")) + len(self.books._all)
        given = {
            "location": location,
            "subnet": subnet,
            "group": group,
            "ip": f"10.0.{number // 250}.{number % 250 + 4}",
        }
        return self.add("nic", path, (0, "Succeeded"), lag=lag, **given, **facts)

    def with_address(self, path: str, location: str, card: str, **facts: Any) -> Resource:
        number = len(self.books._all)
        shown = f"203.0.{number // 250}.{number % 250}"
        return self.add(
            "address", path, (0, "Succeeded"), lag=self.script.lag, location=location, card=card, ip=shown, **facts
        )

    @answers("NetworkInterfaces_create_or_update", "PublicIPAddresses_create_or_update")
    def _create_card(self, call: Call) -> Any:
        """By hand, as people do."""
        path, body = path_of(call), call.body
        self.open_group(path)
        self.check_tags(body)
        has = body.get("properties") or {}
        if "publicIPAddresses" in path:
            if body.get("sku", {}).get("name") != "Standard" or has.get("publicIPAllocationMethod") != "Static":
                raise error(400, "IPv4BasicSkuPublicIpCountLimitReached", "basic addresses are retired")
            return Answer(201, self._address(self.with_address(path, body["location"], "", tags=body.get("tags", {}))))
        subnet = has["ipConfigurations"][0]["properties"]["subnet"]["id"]
        self.usable(subnet, body["location"])
        made = self.with_card(path, body["location"], subnet, "", tags=body.get("tags", {}), machine="", address="")
        return Answer(201, self._card(made))

    @answers("NetworkInterfaces_get", "PublicIPAddresses_get")
    def _get_card(self, call: Call) -> Any:
        if call.query.get("$expand"):
            raise error(400, "BadRequest", "nothing is expanded here")
        path = path_of(call)
        if "networkInterfaces" in path:
            return self._card(self.found("nic", path))
        return self._address(self.found("address", path))

    @answers("NetworkInterfaces_list", "PublicIPAddresses_list")
    def _list_cards(self, call: Call) -> Any:
        kind, shown = ("nic", self._card) if "networkInterfaces" in path_of(call) else ("address", self._address)
        self.in_group(path_of(call))
        return self.listing(call, self._inside(call, kind), shown)

    def _inside(self, call: Call, kind: str) -> Iterator[Resource]:
        """What the list of a resource group shows."""
        prefix = path_of(call).lower() + "/"
        return (each for each in self.books.shown(kind) if each.facts["path"].lower().startswith(prefix))

    @answers("NetworkInterfaces_delete", "PublicIPAddresses_delete")
    def _delete_card(self, call: Call) -> Any:
        path = path_of(call)
        self.in_group(path)
        if "publicIPAddresses" in path:
            address = self.existing("address", path)
            if address is not None and self.existing("nic", address.facts["card"]) is not None:
                raise error(400, "PublicIPAddressCannotBeDeleted", f"{path} is still allocated to a resource.")
            return self._ended(address)
        card = self.existing("nic", path)
        if card is not None:
            self._free(card)
        return self._ended(card)

    def _free(self, card: Resource) -> None:
        """Refuses while a machine holds it, and for a while after."""
        machine = self.existing("vm", card.facts["machine"])
        if machine is not None:
            raise error(400, "NicInUse", f"Network Interface {card.facts['path']} is used by {machine.facts['path']}.")
        if self.now() < card.facts.get("reserved_until", 0):
            text = "Nic is reserved for another virtual machine for 180 seconds."
            raise error(400, "NicReservedForAnotherVm", text)

    def _ended(self, made: Resource | None) -> Answer:
        if made is None:
            return Answer(204)
        made.goes(self.now(), (0, "Deleting"), (2 * SECOND, GONE))
        return Answer(202)

    def _card(self, card: Resource) -> Any:
        path, facts = card.facts["path"], card.facts
        inside: dict[str, Any] = {"subnet": {"id": facts["subnet"]}, "privateIPAddress": facts["ip"]}
        if self.existing("address", facts["address"]) is not None:
            inside["publicIPAddress"] = {"id": facts["address"]}
        has: dict[str, Any] = {
            "provisioningState": card.state(self.now()),
            "ipConfigurations": [{"name": "main", "properties": inside}],
            **({"networkSecurityGroup": {"id": facts["group"]}} if facts["group"] else {}),
        }
        if self.existing("vm", facts["machine"]) is not None or (facts["machine"] and "nic" in self.clings):
            has["virtualMachine"] = {"id": facts["machine"].upper()}
        return {"id": path, "name": path.rpartition("/")[2], "location": facts["location"], "tags": facts["tags"]} | {
            "properties": has
        }

    def _address(self, address: Resource) -> Any:
        path, facts = address.facts["path"], address.facts
        has: dict[str, Any] = {"provisioningState": address.state(self.now()), "ipAddress": facts["ip"]}
        if self.existing("nic", facts["card"]) is not None or (facts["card"] and "address" in self.clings):
            has["ipConfiguration"] = {"id": f"{facts['card']}/ipConfigurations/main"}
        return {"id": path, "name": path.rpartition("/")[2], "location": facts["location"], "tags": facts["tags"]} | {
            "properties": has
        }


def _subnets(body: Any) -> list[Any]:
    return list(body.get("properties", {}).get("subnets") or ())

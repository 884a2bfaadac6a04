"""Where instances are and how they are reached: zones, placement groups, reservations, interfaces, Elastic IPs.

moto has no groups, reservations or limits; releases addresses and security groups that are in use; and keeps the
interfaces of what has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.backends.aws.account import Account, Handler, fits, page, tag_list, tags_of
from tests.backends.aws.rules import market
from tests.backends.aws.wire import Call, Params, Refusal

if TYPE_CHECKING:
    from tests.backends.aws.instances import Machine


class Places:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._zones: dict[str, dict[str, str]] = {}  # region → subnet → zone
        self.groups: dict[tuple[str, str], Params] = {}  # region and name
        self.addresses: dict[str, Params] = {}  # allocation → what AWS shows, and its region
        self.reservations: dict[str, Params] = {}
        self.loose: dict[str, Params] = {}  # interfaces that belong to no instance

    def handlers(self) -> dict[str, Handler]:
        return {
            "CreatePlacementGroup": self.create_group,
            "DescribePlacementGroups": self.describe_groups,
            "DeletePlacementGroup": self.delete_group,
            "DescribeCapacityReservations": self.describe_reservations,
            "AllocateAddress": self.allocate,
            "AssociateAddress": self.associate,
            "DisassociateAddress": self.disassociate,
            "ReleaseAddress": self.release,
            "DescribeAddresses": self.describe_addresses,
            "DescribeNetworkInterfaces": self.describe_nics,
            "DeleteNetworkInterface": self.delete_nic,
            "CreateSubnet": self.create_subnet,
            "DeleteSecurityGroup": self.delete_security_group,
        }

    # --- zones -------------------------------------------------------------------------------------------------------

    def zones(self, call: Call) -> set[str]:
        return set(self._of_region(call).values())

    def zone(self, call: Call) -> str:
        """Where a launch goes; empty for any other call."""
        if call.operation != "RunInstances":
            return ""
        first = next(iter(call.params.get("NetworkInterfaces", ())), {})
        subnet = call.params.get("SubnetId") or first.get("SubnetId")
        if subnet is None:
            return str(call.params.get("Placement", {}).get("AvailabilityZone") or min(self.zones(call)))
        if subnet not in self._of_region(call):
            raise Refusal("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
        return self._of_region(call)[subnet]

    def _of_region(self, call: Call) -> dict[str, str]:
        if call.region not in self._zones:
            self._zones[call.region] = self._account.zones(call.region)
        return self._zones[call.region]

    def create_subnet(self, call: Call) -> Params:
        self._zones.pop(call.region, None)
        return self._account.moto(call)

    def delete_security_group(self, call: Call) -> Params:
        name = call.params.get("GroupId")
        for machine in self._account.machines.all.values():
            used = {group["GroupId"] for nic in machine.nics for group in nic["Groups"]}
            if name in used and self._account.machines.state(machine) != "terminated":
                raise Refusal("DependencyViolation", f"resource {name} has a dependent object")
        return self._account.moto(call)

    # --- placement groups --------------------------------------------------------------------------------------------

    def create_group(self, call: Call) -> Params:
        name, script = call.params["GroupName"], self._account.script
        if (call.region, name) in self.groups:
            raise Refusal("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
        if call.params.get("DryRun"):
            raise Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        if sum(region == call.region for region, _ in self.groups) >= script.groups:
            raise Refusal("PlacementGroupLimitExceeded", "You have reached the limit of placement groups")
        made = {
            "GroupName": name,
            "GroupId": self._account.new_id("pg"),
            "State": "available",
            "Strategy": call.params.get("Strategy", "cluster"),
            "Tags": tag_list(tags_of(call.params, "placement-group")),
        }
        self.groups[call.region, name] = made
        return {"PlacementGroup": made}

    def describe_groups(self, call: Call) -> Params:
        for name in call.params.get("GroupNames", ()):
            self._group(call.region, name)
        wanted = call.params.get("GroupNames")
        read: dict[str, Any] = {"group-name": lambda body: body["GroupName"], "state": lambda body: body["State"]}
        here = [body for (region, _), body in self.groups.items() if region == call.region]
        here = [body for body in here if not wanted or body["GroupName"] in wanted]
        return {"PlacementGroups": [body for body in here if fits(body, call.params.get("Filters", []), read)]}

    def delete_group(self, call: Call) -> Params:
        name = call.params["GroupName"]
        self._group(call.region, name)
        if self._inside(call.region, name):
            raise Refusal("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use")
        del self.groups[call.region, name]
        return {}

    def _group(self, region: str, name: str) -> Params:
        if (region, name) not in self.groups:
            raise Refusal("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        return self.groups[region, name]

    def _inside(self, region: str, name: str) -> list[Machine]:
        machines = self._account.machines
        return [
            machine
            for machine in machines.all.values()
            if (machine.region, machine.group) == (region, name) and machines.state(machine) != "terminated"
        ]

    def check_target(self, call: Call, zone: str) -> None:
        """The group and the reservation that a launch names."""
        if name := call.params.get("Placement", {}).get("GroupName"):
            self._group(call.region, name)
            if any(machine.zone != zone for machine in self._inside(call.region, name)):
                raise Refusal(
                    "InsufficientInstanceCapacity", f"The group '{name}' is in another Availability Zone", 500
                )
        target = call.params.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        block = market(call.params) == "capacity-block"
        if not target:
            if block:
                raise Refusal("MissingParameter", "The market type capacity-block needs a capacity reservation target")
            return
        self._check_reservation(call, zone, target["CapacityReservationId"], block)

    # --- reservations ------------------------------------------------------------------------------------------------

    def reserve(self, region: str, zone: str, type_name: str, count: int = 1, **other: Any) -> str:
        identity = self._account.new_id("cr")
        self.reservations[identity] = {
            "CapacityReservationId": identity,
            "Region": region,
            "AvailabilityZone": zone,
            "InstanceType": type_name,
            "TotalInstanceCount": count,
            "State": "active",
            "Tenancy": "default",
            "ReservationType": "default",
            "InstancePlatform": "Linux/UNIX",
            **other,
        }
        return identity

    def describe_reservations(self, call: Call) -> Params:
        wanted = call.params.get("CapacityReservationIds")
        for identity in wanted or ():
            if identity not in self.reservations or self.reservations[identity]["Region"] != call.region:
                raise Refusal(
                    "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{identity}' does not exist."
                )
        read: dict[str, Any] = {
            "state": lambda body: body["State"],
            "instance-type": lambda body: body["InstanceType"],
            "availability-zone": lambda body: body["AvailabilityZone"],
        }
        found = []
        for identity, body in self.reservations.items():
            if body["Region"] == call.region and (not wanted or identity in wanted):
                left = body["TotalInstanceCount"] - self.used(identity)
                found.append({**body, "AvailableInstanceCount": left})
        listed, token = page([b for b in found if fits(b, call.params.get("Filters", []), read)], call.params, 0)
        return {"CapacityReservations": listed, **({"NextToken": token} if token else {})}

    def used(self, reservation: str) -> int:
        machines = self._account.machines
        return sum(m.reservation == reservation and machines.state(m) != "terminated" for m in machines.all.values())

    def _check_reservation(self, call: Call, zone: str, identity: str, block: bool) -> None:
        body = self.reservations.get(identity)
        if body is None or body["Region"] != call.region:
            raise Refusal("InvalidCapacityReservationId.NotFound", f"The reservation '{identity}' does not exist.")
        if body["State"] != "active":
            raise Refusal("InvalidCapacityReservationState.PendingActivation", f"'{identity}' is {body['State']}")
        if (body["ReservationType"] == "capacity-block") != block:
            raise Refusal("InvalidParameterValue", "The market type of the request is not valid for the reservation")
        if (body["InstanceType"], body["AvailabilityZone"]) != (call.params["InstanceType"], zone):
            raise Refusal("InvalidParameterValue", "The reservation's type or zone differs from the request's")
        if self.used(identity) + call.params["MinCount"] > body["TotalInstanceCount"]:
            raise Refusal("ReservationCapacityExceeded", f"'{identity}' has no capacity left")

    # --- Elastic IPs -------------------------------------------------------------------------------------------------

    def allocate(self, call: Call) -> Params:
        if call.params.get("DryRun"):
            raise Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        if sum(body["Region"] == call.region for body in self.addresses.values()) >= self._account.script.addresses:
            raise Refusal("AddressLimitExceeded", "The maximum number of addresses has been reached.")
        identity = self._account.new_id("eipalloc")
        made = {
            "AllocationId": identity,
            "PublicIp": f"198.51.100.{len(self.addresses) + 1}",
            "Domain": "vpc",
            "Region": call.region,
            "Tags": tag_list(tags_of(call.params, "elastic-ip")),
        }
        self.addresses[identity] = made
        return made

    def associate(self, call: Call) -> Params:
        params, machines = call.params, self._account.machines
        body = self._address(call, params["AllocationId"])
        if "InstanceId" in params:
            machine = machines.known(params["InstanceId"], call.region)
            if len(machine.nics) > 1:
                raise Refusal("InvalidInstanceID", "There are multiple interfaces attached to the instance")
            nic = machine.nics[0]["NetworkInterfaceId"]
        else:
            nic = params["NetworkInterfaceId"]
            owners = [m for m in machines.all.values() if nic in {each["NetworkInterfaceId"] for each in m.nics}]
            if not owners:
                raise Refusal("InvalidNetworkInterfaceID.NotFound", f"The networkInterface ID '{nic}' does not exist")
            machine = owners[0]
        if machines.state(machine) != "running":
            raise Refusal("IncorrectInstanceState", f"The pending instance '{machine.id}' is not in a valid state")
        if body.get("AssociationId"):
            if body["NetworkInterfaceId"] == nic:
                return {"AssociationId": body["AssociationId"]}
            if not params.get("AllowReassociation"):
                raise Refusal("Resource.AlreadyAssociated", f"{params['AllocationId']} is already associated")
        body |= {
            "AssociationId": self._account.new_id("eipassoc"),
            "NetworkInterfaceId": nic,
            "InstanceId": machine.id,
        }
        return {"AssociationId": body["AssociationId"]}

    def disassociate(self, call: Call) -> Params:
        for body in self.addresses.values():
            if body.get("AssociationId") == call.params["AssociationId"] and body["Region"] == call.region:
                self._unbind(body)
                return {}
        raise Refusal("InvalidAssociationID.NotFound", "The association ID does not exist")

    def release(self, call: Call) -> Params:
        body = self._address(call, call.params["AllocationId"])
        if body.get("AssociationId"):
            raise Refusal("InvalidIPAddress.InUse", f"Address {body['PublicIp']} is in use.")
        del self.addresses[body["AllocationId"]]
        return {}

    def describe_addresses(self, call: Call) -> Params:
        for identity in call.params.get("AllocationIds", ()):
            self._address(call, identity)
        wanted = call.params.get("AllocationIds")
        read: dict[str, Any] = {
            "allocation-id": lambda body: body["AllocationId"],
            "instance-id": lambda body: body.get("InstanceId"),
            "domain": lambda body: body["Domain"],
        }
        here = [body for body in self.addresses.values() if body["Region"] == call.region]
        here = [body for body in here if not wanted or body["AllocationId"] in wanted]
        return {"Addresses": [body for body in here if fits(body, call.params.get("Filters", []), read)]}

    def with_address(self, nic: Params) -> Params:
        for body in self.addresses.values():
            if body.get("NetworkInterfaceId") == nic["NetworkInterfaceId"]:
                return {**nic, "Association": {"PublicIp": body["PublicIp"], "IpOwnerId": self._account.id}}
        return nic

    def _address(self, call: Call, identity: str) -> Params:
        body = self.addresses.get(identity)
        if body is None or body["Region"] != call.region:
            raise Refusal("InvalidAllocationID.NotFound", f"The allocation ID '{identity}' does not exist")
        return body

    @staticmethod
    def _unbind(body: Params) -> None:
        for name in ("AssociationId", "NetworkInterfaceId", "InstanceId"):
            body.pop(name, None)

    # --- interfaces --------------------------------------------------------------------------------------------------

    def left(self, machine: Machine) -> None:
        """The instance has ended: addresses are free, and interfaces that don't go with it stay."""
        names = {nic["NetworkInterfaceId"] for nic in machine.nics}
        for body in self.addresses.values():
            if body.get("NetworkInterfaceId") in names:
                self._unbind(body)
        for nic in machine.nics:
            if not nic["Attachment"]["DeleteOnTermination"]:
                tags = tag_list(tags_of(machine.params, "network-interface"))
                self.loose[nic["NetworkInterfaceId"]] = {
                    "NetworkInterfaceId": nic["NetworkInterfaceId"],
                    "Status": "available",
                    "TagSet": tags,
                    "Tags": tags,
                    "Region": machine.region,
                    "AvailabilityZone": machine.zone,
                }

    def describe_nics(self, call: Call) -> Params:
        read: dict[str, Any] = {
            "status": lambda body: body["Status"],
            "attachment.instance-id": lambda body: body.get("Attachment", {}).get("InstanceId"),
            "network-interface-id": lambda body: body["NetworkInterfaceId"],
        }
        found = [body for body in self.loose.values() if body["Region"] == call.region]
        machines = self._account.machines
        for machine in machines.all.values():
            if machine.region == call.region and machines.state(machine) != "terminated":
                tags = tag_list(tags_of(machine.params, "network-interface"))
                for nic in machine.nics:
                    bound = {**nic["Attachment"], "InstanceId": machine.id}
                    found.append({**nic, "Attachment": bound, "TagSet": tags, "Tags": tags})
        wanted = call.params.get("NetworkInterfaceIds")
        found = [body for body in found if not wanted or body["NetworkInterfaceId"] in wanted]
        listed, token = page([b for b in found if fits(b, call.params.get("Filters", []), read)], call.params, 0)
        return {"NetworkInterfaces": listed, **({"NextToken": token} if token else {})}

    def delete_nic(self, call: Call) -> Params:
        identity = call.params["NetworkInterfaceId"]
        if identity not in self.loose:
            used = any(identity == n["NetworkInterfaceId"] for m in self._account.machines.all.values() for n in m.nics)
            code = "InvalidNetworkInterface.InUse" if used else "InvalidNetworkInterfaceID.NotFound"
            raise Refusal(code, f"The networkInterface '{identity}' is in use or doesn't exist")
        del self.loose[identity]
        return {}

"""Instances as AWS has them: moto launches them, and everything that it gets wrong of them is kept here.

Put right: client tokens (by zone; mismatched; of what has terminated), the time that each state takes, what shows late,
markets and spot requests, network interfaces, placement groups, reservations, capacity, quotas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.instants import MINUTE, Micros
from tests.backends.aws.account import Account, Handler, fits, page, tag_list, tags_of
from tests.backends.aws.rules import check_launch, market, vcpus
from tests.backends.aws.shop import quota_code
from tests.backends.aws.wire import Call, Params, Refusal

NOTICE = 2 * MINUTE  # between the notice to a spot instance and its end
CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
_FILTERS = {  # filters that moto lacks, or answers by its own idea of time
    "client-token": lambda body: body.get("ClientToken"),
    "instance-state-name": lambda body: body["State"]["Name"],
    "instance-lifecycle": lambda body: body.get("InstanceLifecycle"),
    "placement-group-name": lambda body: body["Placement"].get("GroupName"),
    "availability-zone": lambda body: body["Placement"]["AvailabilityZone"],
    "capacity-reservation-id": lambda body: body.get("CapacityReservationId"),
}


@dataclass
class Machine:
    """What moto doesn't know of one of its instances."""

    id: str
    region: str
    zone: str
    params: Params
    made_at: Micros
    nics: list[Params]
    group: str = ""
    reservation: str = ""
    spot_request: str = ""
    ends_at: Micros | None = None  # when it is terminated
    stops_at: Micros | None = None  # when it begins to shut down
    reason: tuple[str, str] = ("", "")
    ended: bool = False  # moto was told
    tags: dict[str, str] = field(default_factory=dict)


class Machines:
    def __init__(self, account: Account) -> None:
        self._account = account
        self.all: dict[str, Machine] = {}
        self._tokens: dict[tuple[str, str, str], tuple[Params, str]] = {}  # to the request, and moto's reservation

    def handlers(self) -> dict[str, Handler]:
        return {
            "RunInstances": self.run,
            "DescribeInstances": self.describe,
            "TerminateInstances": self.terminate,
            "DescribeSpotInstanceRequests": self.spot_requests,
            "CancelSpotInstanceRequests": self.cancel,
        }

    # --- launch ------------------------------------------------------------------------------------------------------

    def run(self, call: Call) -> Params:
        account, params = self._account, call.params
        check_launch(params)
        zone = account.places.zone(call)
        token = params.get("ClientToken", "")
        if token and (call.region, zone, token) in self._tokens:
            return self._again(call, *self._tokens[call.region, zone, token])
        if params.get("DryRun"):
            raise Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        count = self._admitted(call, zone)
        made = account.moto(call, **self._for_moto(call, count))
        for body in made["Instances"]:
            self._remember(call, zone, body)
        if token:
            self._tokens[call.region, zone, token] = params, made["ReservationId"]
        return {**made, "Instances": [self._record_program(body) for body in made["Instances"]]}

    def _again(self, call: Call, params: Params, reservation: str) -> Params:
        if params != call.params:
            raise Refusal("IdempotentParameterMismatch", "The client token was used with other parameters")
        found = [each for each in self._reservations(call, []) if each["ReservationId"] == reservation]
        bodies = [body for each in found for body in each["Instances"]]
        if not bodies or all(body["State"]["Name"] == "terminated" for body in bodies):
            raise Refusal("IdempotentInstanceTerminated", "The client token is of an instance that is terminated")
        return {**found[0], "Instances": bodies}

    def _admitted(self, call: Call, zone: str) -> int:
        """How many are launched."""
        script, params, name = self._account.script, call.params, call.params["InstanceType"]
        if f"{zone}/{name}" in script.not_offered:
            raise Refusal("Unsupported", f"Your requested instance type ({name}) is not supported in {zone}.")
        self._account.places.check_target(call, zone)
        most = params["MaxCount"]
        if limit := self._account.shop.limit(name, market(params)):
            used = sum(vcpus(m.params["InstanceType"]) for m in self._alive(call.region) if _counts(m, params))
            if used + vcpus(name) * params["MinCount"] > limit[1]:
                raise Refusal(limit[0], f"You have requested more vCPU capacity than your current limit of {limit[1]}")
        room = script.capacity.get(f"{zone}/{name}")
        if room is not None:
            here = [m for m in self._alive(call.region) if (m.zone, m.params["InstanceType"]) == (zone, name)]
            most = min(most, room - len(here))
        if most < params["MinCount"]:
            raise Refusal(
                "InsufficientInstanceCapacity", f"We currently do not have sufficient {name} capacity in {zone}.", 500
            )
        return int(most)

    def _for_moto(self, call: Call, count: int) -> Params:
        """It mistakes markets, collapses interfaces, and knows neither groups nor reservations."""
        first = next(iter(call.params.get("NetworkInterfaces", ())), {})
        subnet = call.params.get("SubnetId") or first.get("SubnetId")
        tags = [
            each for each in call.params.get("TagSpecifications", ()) if each["ResourceType"] in ("instance", "volume")
        ]
        return {
            "MinCount": count,
            "MaxCount": count,
            "SubnetId": subnet,
            "SecurityGroupIds": call.params.get("SecurityGroupIds") or first.get("Groups"),
            "NetworkInterfaces": None,
            "InstanceMarketOptions": None,
            "CapacityReservationSpecification": None,
            "Placement": None if subnet else {"AvailabilityZone": self._account.places.zone(call)},
            "TagSpecifications": tags or None,
        }

    def _remember(self, call: Call, zone: str, body: Params) -> None:
        account, params = self._account, call.params
        target = params.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        machine = Machine(
            id=body["InstanceId"],
            region=call.region,
            zone=zone,
            params=params,
            made_at=account.now(),
            nics=self._nics(params, body),
            group=params.get("Placement", {}).get("GroupName", ""),
            reservation=target.get("CapacityReservationId", ""),
            spot_request=account.new_id("sir") if market(params) == "spot" else "",
            tags=tags_of(params, "instance"),
        )
        if zone in account.script.late:
            machine.ends_at = machine.made_at + account.script.boot
            machine.reason = ("Server.InsufficientInstanceCapacity", "Insufficient capacity to satisfy the request")
        self.all[machine.id] = machine
        account.disks.root(call, machine.id, zone)

    def _nics(self, params: Params, body: Params) -> list[Params]:
        (primary,) = body["NetworkInterfaces"]
        interfaces = params.get("NetworkInterfaces") or [
            {"DeviceIndex": 0, "Groups": params.get("SecurityGroupIds", [])}
        ]
        public = len(interfaces) == 1 and interfaces[0].get("AssociatePublicIpAddress", True)
        nics = []
        for nic in interfaces:
            is_first = (nic.get("NetworkCardIndex", 0), nic["DeviceIndex"]) == (0, 0)
            one = {**primary} if is_first else {"NetworkInterfaceId": self._account.new_id("eni")}
            one |= {"InterfaceType": nic.get("InterfaceType", "interface"), "Status": "in-use"}
            one["Groups"] = [{"GroupId": each, "GroupName": ""} for each in nic.get("Groups", ())]
            one["Attachment"] = {
                "DeviceIndex": nic["DeviceIndex"],
                "NetworkCardIndex": nic.get("NetworkCardIndex", 0),
                "DeleteOnTermination": nic.get("DeleteOnTermination", is_first),
                "Status": "attached",
            }
            if not (is_first and public):
                one.pop("Association", None)
            nics.append(one)
        return nics

    # --- look --------------------------------------------------------------------------------------------------------

    def describe(self, call: Call) -> Params:
        params, account = call.params, self._account
        if params.get("InstanceIds") and params.get("MaxResults"):
            raise Refusal(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        for identity in params.get("InstanceIds", ()):
            self.known(identity, call.region)
        found = self._reservations(call, params.get("Filters", []), params.get("InstanceIds"))
        shown = []
        for each in found:
            bodies = [body for body in each["Instances"] if self._shows(self.all[body["InstanceId"]])]
            if bodies:
                shown.append({**each, "Instances": bodies})
        listed, token = page(shown, params, account.script.page)
        return {"Reservations": listed, **({"NextToken": token} if token else {})}

    def _reservations(self, call: Call, filters: list[Params], ids: list[str] | None = None) -> list[Params]:
        """All that fit, whatever shows."""
        if not any(machine.region == call.region for machine in self.all.values()):
            return []
        of_moto = [each for each in filters if each["Name"] not in _FILTERS]
        of_fake = [each for each in filters if each["Name"] in _FILTERS]
        found: list[Params] = []
        token = None
        while True:
            answer = self._account.moto(
                call, "DescribeInstances", Filters=of_moto or None, InstanceIds=ids, NextToken=token
            )
            for each in answer["Reservations"]:
                bodies = [self._record_program(body) for body in each["Instances"] if body["InstanceId"] in self.all]
                found.append({**each, "Instances": [body for body in bodies if fits(body, of_fake, _FILTERS)]})
            token = answer.get("NextToken")
            if not token:
                return [each for each in found if each["Instances"]]

    def known(self, identity: str, region: str) -> Machine:
        if not re.fullmatch(r"i-[0-9a-f]{8,17}", identity):
            raise Refusal("InvalidInstanceID.Malformed", f'Invalid id: "{identity}"')
        machine = self.all.get(identity)
        if machine is None or machine.region != region or not self._shows(machine):
            raise Refusal("InvalidInstanceID.NotFound", f"The instance ID '{identity}' does not exist")
        return machine

    def _shows(self, machine: Machine) -> bool:
        script, now = self._account.script, self._account.now()
        over = machine.ends_at is not None and now >= machine.ends_at + script.listed_for
        return now >= machine.made_at + script.lag and not over

    def state(self, machine: Machine) -> str:
        now = self._account.now()
        if machine.ends_at is not None and now >= machine.ends_at:
            return "terminated"
        if machine.stops_at is not None and now >= machine.stops_at:
            return "shutting-down"
        return "running" if now >= machine.made_at + self._account.script.boot else "pending"

    def _record_program(self, body: Params) -> Params:
        """moto's instance as AWS shows it."""
        machine = self.all[body["InstanceId"]]
        state = self.state(machine)
        code, text = machine.reason if state in ("shutting-down", "terminated") else ("", "")
        nics = [] if state == "terminated" else [self._account.places.with_address(nic) for nic in machine.nics]
        public = next((nic["Association"]["PublicIp"] for nic in nics if "Association" in nic), None)
        changed: Params = {
            "State": {"Name": state, "Code": CODES[state]},
            "StateReason": {"Code": code, "Message": text} if code else None,
            "LaunchTime": self._account.at(machine.made_at),
            "ClientToken": machine.params.get("ClientToken", ""),
            "NetworkInterfaces": nics,
            "PublicIpAddress": public if state == "running" else None,
            "PublicDnsName": None,
            "PrivateIpAddress": None if state == "terminated" else body.get("PrivateIpAddress"),
            "Placement": {"AvailabilityZone": machine.zone, "GroupName": machine.group, "Tenancy": "default"},
            "InstanceLifecycle": {"spot": "spot", "capacity-block": "capacity-block"}.get(market(machine.params)),
            "SpotInstanceRequestId": machine.spot_request or None,
            "CapacityReservationId": machine.reservation or None,
            "BlockDeviceMappings": self._account.disks.mappings(machine.id),
        }
        return {name: value for name, value in {**body, **changed}.items() if value is not None}

    # --- end ---------------------------------------------------------------------------------------------------------

    def terminate(self, call: Call) -> Params:
        machines = [self.known(each, call.region) for each in call.params["InstanceIds"]]
        changes = []
        for machine in machines:
            before = self.state(machine)
            if before not in ("shutting-down", "terminated"):
                self._end(machine, self._account.now(), "Client.UserInitiatedShutdown")
            after = self.state(machine)
            states = {"CurrentState": after, "PreviousState": before}
            changed_state = {name: {"Name": state, "Code": CODES[state]} for name, state in states.items()}
            changes.append({"InstanceId": machine.id, **changed_state})
        return {"TerminatingInstances": changes}

    def _end(self, machine: Machine, when: Micros, reason: str) -> None:
        machine.stops_at, machine.ends_at = when, when + self._account.script.end
        machine.reason = (reason, f"{reason}: scripted")

    def age(self, region: str) -> None:
        """moto ends at once what AWS ends after a while, and forgets neither interfaces nor addresses of it."""
        for machine in self.all.values():
            if machine.region == region and not machine.ended and self.state(machine) == "terminated":
                machine.ended = True
                self._account.disks.left(machine.id)
                self._account.places.left(machine)
                call = Call("ec2", region, "TerminateInstances", {"InstanceIds": [machine.id]})
                self._account.moto(call)

    def _alive(self, region: str) -> list[Machine]:
        return [m for m in self.all.values() if m.region == region and self.state(m) != "terminated"]

    # --- spot --------------------------------------------------------------------------------------------------------

    def interrupt(self, instance_id: str) -> None:
        """AWS gives notice, and takes the instance two minutes later."""
        self._end(self.all[instance_id], self._account.now() + NOTICE, "Server.SpotInstanceTermination")

    def lose(self, instance_id: str) -> None:
        """It is gone, and nobody said so."""
        machine = self.all[instance_id]
        machine.stops_at = machine.ends_at = self._account.now() - self._account.script.listed_for
        machine.reason = ("Server.InternalError", "lost")

    def spot_requests(self, call: Call) -> Params:
        requested = [m for m in self.all.values() if m.region == call.region and m.spot_request and self._shows(m)]
        found = [self._spot_request(machine) for machine in requested]
        read: dict[str, Any] = {
            "spot-instance-request-id": lambda body: body["SpotInstanceRequestId"],
            "instance-id": lambda body: body["InstanceId"],
            "state": lambda body: body["State"],
            "status-code": lambda body: body["Status"]["Code"],
        }
        wanted = call.params.get("SpotInstanceRequestIds")
        found = [
            body
            for body in found
            if fits(body, call.params.get("Filters", []), read)
            and (not wanted or body["SpotInstanceRequestId"] in wanted)
        ]
        if wanted and len(found) < len(set(wanted)) and not call.params.get("Filters"):
            raise Refusal("InvalidSpotInstanceRequestID.NotFound", f"{wanted} does not exist")
        listed, token = page(found, call.params, self._account.script.page)
        return {"SpotInstanceRequests": listed, **({"NextToken": token} if token else {})}

    def _spot_request(self, machine: Machine) -> Params:
        taken = machine.reason[0] == "Server.SpotInstanceTermination"
        over = self.state(machine) == "terminated"
        code = (
            "instance-terminated-no-capacity" if taken and over else "marked-for-termination" if taken else "fulfilled"
        )
        if over and not taken:
            code = "instance-terminated-by-user"
        return {
            "SpotInstanceRequestId": machine.spot_request,
            "InstanceId": machine.id,
            "State": "closed" if over else "active",
            "Status": {"Code": code, "Message": code},
            "Type": "one-time",
            "Tags": tag_list(tags_of(machine.params, "spot-instances-request")),
        }

    def cancel(self, call: Call) -> Params:
        ids = call.params["SpotInstanceRequestIds"]
        return {
            "CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": each, "State": "cancelled"} for each in ids]
        }


def _counts(machine: Machine, params: Params) -> bool:
    """Does it use up the quota that a launch with these parameters needs?"""
    return _quota(machine.params) == _quota(params)


def _quota(params: Params) -> str | None:
    return quota_code(params["InstanceType"], market(params))

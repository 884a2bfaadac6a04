"""An AWS account, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from chalicelib.backends.aws.catalog import ADDRESS
from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.spi import Backend
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from tests.backends.aws.account import Account, Fault
from tests.backends.aws.lines import KEY, SECRET
from tests.backends.aws.rules import vcpus
from tests.backends.aws.shop import disk_price, price, quota_code, spot_price
from tests.backends.aws.wire import Call as AwsCall
from tests.backends.aws.wire import raw_user_data
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import INSTALL, OTHER_INSTALL, request_for

REGIONS = ("us-east-1", "eu-west-1")
IMAGE = "ami-0b1a000000000003"  # of somebody's own machines
# What a call of the protocol asks of AWS first, and what it does there.
OPERATIONS = {
    "check": "GetCallerIdentity",
    "offers": "DescribeInstanceTypes",
    "create": "RunInstances",
    "describe": "DescribeInstances",
    "terminate": "TerminateInstances",
    "list": "DescribeInstances",
}
CODES = {
    "InvalidCredentials": ("AuthFailure", 401),
    "MissingPermission": ("UnauthorizedOperation", 403),
    "Throttled": ("RequestLimitExceeded", 503),
    "Transient": ("InternalError", 500),
}


def config(**other: Any) -> AWSBackendConfig:
    creds = {"type": "access_key", "access_key": KEY, "secret_key": SECRET}
    return AWSBackendConfig.model_validate({"type": "aws", "creds": creds, "regions": list(REGIONS), **other})


def clients(account: Account) -> Clients:
    return Clients(config().creds, session=account.session)


class AwsProvider:
    secrets: Sequence[str] = (SECRET,)

    def __init__(self, account: Account) -> None:
        self._account = account

    def existing(self) -> set[str]:
        """Without the disks and interfaces that go with a machine, which nobody has to end."""
        account, machines = self._account, self._account.machines
        alive = {machine.id for machine in machines.all.values() if machines.state(machine) != "terminated"}
        free = {volume.id for volume in account.disks.all.values() if alive.isdisjoint(volume.attached)}
        return alive | free | set(account.places.addresses) | set(account.places.loose)

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        code, status = CODES[error]
        self._account.script.faults.append(Fault(OPERATIONS[call], code, when, times, status=status))

    def page_fails(self) -> None:
        fault = Fault("DescribeInstances", "InternalError", further=True, status=500)
        self._account.script.faults.append(fault)

    def region_down(self, region: str) -> None:
        fault = Fault("DescribeInstances", "Unavailable", region=region, status=503)
        self._account.script.faults.append(fault)

    def invisible_for(self, seconds: float) -> None:
        self._account.script.lag = round(seconds * SECOND)

    def pages_of(self, size: int) -> None:
        self._account.script.page = size

    def none_left(self, offer: Offer) -> None:
        for zone in offer.availability_zones or ():
            self._account.script.capacity[f"{zone}/{offer.instance.name}"] = 0

    def zone_is_full(self, offer: Offer, zone: str, *, full: bool = True) -> None:
        self._account.script.capacity[f"{zone}/{offer.instance.name}"] = 0 if full else 100

    def quota(self, offer: Offer, machines: int) -> None:
        market = "spot" if offer.instance.resources.spot else "on-demand"
        code = quota_code(offer.instance.name, market)
        assert code is not None
        self._account.script.quotas[code] = machines * vcpus(offer.instance.name)

    def falls_short(self, offer: Offer) -> None:
        self._account.script.late |= set(offer.availability_zones or ())

    def lost(self, handles: Sequence[Handle]) -> None:
        self._account.machines.lose(self._vm(handles))

    def reclaim(self, handles: Sequence[Handle]) -> None:
        self._account.machines.interrupt(self._vm(handles))

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        self._run(offer, {"team": "web"})
        self._run(offer, {"dstack-install": INSTALL, "dstack-instance": "x"})
        self._run(
            offer, {"dstack-install": INSTALL, "dstack-project": "p", "dstack-instance": "x", "dstack-epoch": "-"}
        )
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        self._account.disks.add(offer.region, f"{offer.region}a", {"team": "web"})
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        zone = (offer.availability_zones or ())[-1]
        return self._account.places.reserve(offer.region, zone, offer.instance.name, machines, State=state)

    def in_reservation(self, reservation: str) -> int:
        return self._account.places.used(reservation)

    def price(self, offer: Offer) -> float:
        """With its disk. Of a spot machine, in the dearest of its zones: none costs more than its offer says."""
        return (
            self._of_machine(offer) + ADDRESS + disk_price(offer.region, offer.instance.resources.disk.size_mib / 1024)
        )

    def _of_machine(self, offer: Offer) -> float:
        if not offer.instance.resources.spot:
            return price(offer.instance.name, offer.region)
        zones = sorted(self._account.places.zones(AwsCall("ec2", offer.region, "", {}, KEY)))
        sold = [zones.index(zone) for zone in offer.availability_zones or ()]
        return spot_price(offer.instance.name, offer.region, max(sold))

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        """By the rules of every group that the machine is in."""
        machine = self._account.machines.all[self._vm(handles)]
        names = sorted({group["GroupId"] for nic in machine.nics for group in nic["Groups"]})
        groups = clients(self._account).call("ec2", machine.region, "describe_security_groups", GroupIds=names)
        rules = [rule for group in groups["SecurityGroups"] for rule in group["IpPermissions"]]
        world = [rule for rule in rules if {"CidrIp": "0.0.0.0/0"} in rule["IpRanges"] and rule["Ipv6Ranges"]]
        return {port for rule in world for port in range(rule.get("FromPort", -1), rule.get("ToPort", -1) + 1)}

    def user_data(self, handles: Sequence[Handle]) -> str:
        return raw_user_data(self._account.machines.all[self._vm(handles)].params).decode()

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        (volume,) = self._account.disks.on(self._vm(handles))
        return float(volume.params["Size"])

    def tags(self, handle: Handle) -> dict[str, str]:
        if handle.kind == "vm":
            return self._account.machines.all[handle.id].tags
        return {tag["Key"]: tag["Value"] for tag in self._account.places.addresses[handle.id]["Tags"]}

    def _vm(self, handles: Sequence[Handle]) -> str:
        return next(handle.id for handle in handles if handle.kind == "vm")

    def _run(self, offer: Offer, tags: dict[str, str]) -> None:
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        params = {
            "ImageId": IMAGE,
            "InstanceType": offer.instance.name,
            "MinCount": 1,
            "MaxCount": 1,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": listed}],
        }
        self._account.handle(AwsCall("ec2", offer.region, "RunInstances", params, KEY))

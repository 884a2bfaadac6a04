"""One AWS account: its clock, its script, and who answers what.

A call goes through the script's faults, then to whoever handles it here, then to moto. Time passes only by the clock
that the test gives. Every call is kept, as it was parsed: what a request asked for is checked there, since moto's
answer often doesn't show it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import EndpointConnectionError

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from tests.backends.aws.lines import KEY, Line, Session
from tests.backends.aws.remembered import Moto
from tests.backends.aws.wire import Call, Params, Refusal, answered, decode

_NUMBERS = itertools.count(100_000_000_001)

Handler = Callable[[Call], Params]
CREATED = {
    "RunInstances": "instance",
    "CreateVolume": "volume",
    "CreateSecurityGroup": "security-group",
    "CreatePlacementGroup": "placement-group",
    "AllocateAddress": "elastic-ip",
}

# Those that create something look at what is asked for first.
REHEARSED = (
    "AssociateAddress",
    "AttachVolume",
    "AuthorizeSecurityGroupEgress",
    "AuthorizeSecurityGroupIngress",
    "DeleteNetworkInterface",
    "DeletePlacementGroup",
    "DeleteVolume",
    "DetachVolume",
    "DisassociateAddress",
    "ReleaseAddress",
    "TerminateInstances",
)


@dataclass
class Fault:
    """The next `times` calls that fit are refused with `code`: before anything happens, or after all has."""

    operation: str  # `*`: every one
    code: str
    when: Literal["before", "after"] = "before"
    times: int = 1
    region: str = ""  # empty: any
    zone: str = ""
    further: bool = False  # only a page that isn't the first
    message: str = "scripted"
    status: int = 400


@dataclass
class Script:
    lag: Micros = 2 * SECOND  # until what was created shows
    boot: Micros = 10 * SECOND  # from pending to running
    end: Micros = 15 * SECOND  # from shutting-down to terminated
    listed_for: Micros = 60 * MINUTE  # how long what was terminated is still listed
    ready: Micros = 2 * SECOND  # from the creation of a volume until it is available
    attach: Micros = 2 * SECOND
    detach: Micros = 2 * SECOND
    page: int = 0  # AWS may return fewer than asked for; 0: as many
    capacity: dict[str, int] = field(default_factory=dict)  # "zone/type" → machines at once; absent: no limit
    late: set[str] = field(default_factory=set)  # zones whose machines end right after pending, for want of capacity
    not_offered: set[str] = field(default_factory=set)  # "zone/type"
    quotas: dict[str, float] = field(default_factory=dict)  # quota's code → vCPUs; absent: plenty
    sold: tuple[str, ...] = ("m7i.large", "g4dn.xlarge", "g4dn.8xlarge", "g5.xlarge", "p4d.24xlarge")
    addresses: int = 5  # Elastic IPs in a region
    groups: int = 500
    demands: str = ""  # a tag: whoever creates something without it isn't allowed to
    faults: list[Fault] = field(default_factory=list)

    def fault(self, call: Call, when: str, zone: str = "") -> Refusal | None:
        for fault in self.faults:
            fits = fault.operation in ("*", call.operation) and fault.when == when and fault.times > 0
            if (
                fits
                and bool(call.params.get("NextToken")) >= fault.further
                and fault.region in ("", call.region)
                and fault.zone in ("", zone)
            ):
                fault.times -= 1
                return Refusal(fault.code, fault.message, fault.status)
        return None


class Account:
    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        from tests.backends.aws.disks import Disks
        from tests.backends.aws.instances import Machines
        from tests.backends.aws.places import Places
        from tests.backends.aws.shop import Shop

        self.id, self.script, self.now = str(next(_NUMBERS)), script or Script(), now
        self.calls: list[Call] = []
        self.lines: list[Line] = []
        self._lock = threading.RLock()
        self._settled: set[str] = set()
        self._moto = Moto(self.id)
        self._ids = itertools.count(1)
        self.places = Places(self)
        self.disks = Disks(self)
        self.machines = Machines(self)
        self.shop = Shop(self)
        parts = (self.places, self.disks, self.machines, self.shop)
        self._handlers: dict[str, Handler] = {name: each for part in parts for name, each in part.handlers().items()}

    def session(self) -> Session:
        """A session of the SDK whose calls come here."""
        return Session(self)

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        call = decode(request)
        if call.region not in regions():
            raise EndpointConnectionError(endpoint_url=request.url)
        with self._lock:
            return answered(call, request.url, self._answer(call))

    def _answer(self, call: Call) -> Params | Refusal:
        self.calls.append(call)
        if len(self.calls) > 20_000:
            raise AssertionError("a test that calls AWS for ever")
        try:
            self._admit(call)
            result = self.handle(call)
            zone = str(call.params.get("AvailabilityZone", "")) or self.places.zone(call)
            if lost := self.script.fault(call, "after", zone):
                raise lost
            return result
        except Refusal as refusal:
            return refusal

    def _admit(self, call: Call) -> None:
        if call.key != KEY:
            raise Refusal("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
        self._settle(call)
        self.machines.age(call.region)
        self.disks.age()
        if fault := self.script.fault(call, "before", self.places.zone(call)):
            raise fault

        self._authorize(call)

    def _authorize(self, call: Call) -> None:
        """As a policy does with a condition on `aws:RequestTag`."""
        kind, tag = CREATED.get(call.operation, ""), self.script.demands
        if tag and kind and tag not in tags_of(call.params, kind):
            raise Refusal("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)

    def handle(self, call: Call) -> Params:
        if call.params.get("DryRun") and call.operation in REHEARSED:
            raise Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        handler = self._handlers.get(call.operation)
        return handler(call) if handler else self.moto(call)

    def moto(self, call: Call, operation: str = "", **changed: Any) -> Params:
        """moto's answer to it, or to another call in its place; `None` takes a parameter away."""
        params = {**({} if operation else call.params), **changed}
        given = {name: value for name, value in params.items() if value is not None}
        return self._moto.call(Call(call.service, call.region, operation or call.operation, given, call.key))

    def _settle(self, call: Call) -> None:
        """moto's default VPC has no way out; AWS's has an internet gateway. Whoever asks for neither doesn't see it."""
        if call.region in self._settled or not ("Route" in call.operation or "Gateway" in call.operation):
            return
        self._settled.add(call.region)
        self._moto.change("the way out", call.region, _with_a_way_out)

    def zones(self, region: str) -> dict[str, str]:
        """Of each subnet."""
        found: dict[str, str] = self._moto.read(
            "zones", region, lambda kept: {each.id: each.availability_zone for each in kept.describe_subnets()}
        )
        return found

    def in_moto(self, region: str) -> Any:
        """What moto keeps of this account in a region, without the wire: to be read."""
        return self._moto.region(region)

    def params_of(self, operation: str) -> list[Params]:
        """The parameters of every call of it, in order."""
        return [call.params for call in self.calls if call.operation == operation]

    def new_id(self, prefix: str) -> str:
        return f"{prefix}-{int(self.id) * 100_000 + next(self._ids):017x}"[: len(prefix) + 18]

    def at(self, moment: Micros | None = None) -> datetime:
        return datetime.fromtimestamp((self.now() if moment is None else moment) / SECOND, UTC)

    def close(self) -> None:
        """Let moto forget it."""
        for line in self.lines:
            line.free()
        self._moto.forget()


def _with_a_way_out(region: Any) -> None:
    vpc = region.get_default_vpc()
    gateway = region.create_internet_gateway()
    region.attach_internet_gateway(gateway.id, vpc.id)
    (table,) = region.describe_route_tables(filters={"vpc-id": vpc.id})
    region.create_route(table.id, "0.0.0.0/0", gateway_id=gateway.id)


@cache
def regions() -> set[str]:
    """Those with an endpoint."""
    from botocore.session import Session

    return set(Session().get_available_regions("ec2"))


def tags_of(params: Params, kind: str) -> dict[str, str]:
    """The tags that a call asks for, of this kind of resource. Raises what AWS would say of wrong ones."""
    found: dict[str, str] = {}
    for each in params.get("TagSpecifications", ()):
        if each.get("ResourceType") == kind:
            found |= {tag["Key"]: tag.get("Value", "") for tag in each.get("Tags", ())}
    check_tags(found)
    return found


def check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > 50:
        raise Refusal("TagLimitExceeded", "More than 50 tags specified")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise Refusal("InvalidParameterValue", f"Tag {key[:20]} exceeds the maximum length")
        if key.lower().startswith("aws:"):
            raise Refusal("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def fits(body: Params, filters: list[Params], read: Mapping[str, Callable[[Params], Any]]) -> bool:
    """Does it pass AWS's filters? One that isn't known is refused: nothing is filtered by what doesn't count."""
    tags = {tag["Key"]: tag["Value"] for tag in body.get("Tags", ())}
    for each in filters:
        name, wanted = each["Name"], each["Values"]
        if name == "tag-key":
            values = set(tags)
        elif name.startswith("tag:"):
            values = {tags.get(name[4:])}
        elif name in read:
            values = {str(read[name](body))}
        else:
            raise Refusal("InvalidParameterValue", f"The filter '{name}' is invalid")
        if values.isdisjoint(wanted):
            return False
    return True


def page(items: list[Params], params: Params, limit: int) -> tuple[list[Params], str | None]:
    """One page, and the token of the next."""
    start, size = int(params.get("NextToken") or 0), int(params.get("MaxResults") or 1000)
    size = min(size, limit) if limit else size
    return items[start : start + size], str(start + size) if start + size < len(items) else None

"""EBS volumes. A volume and the machines that it is attached to are in one zone.

The agent finds a volume by the serial number that the kernel shows: the volume's id without its hyphen. Disks that
aren't NVMe have none, and the kernel makes up their names, so offers of such types don't support volumes.

The price follows from the size. A volume has no price if its type or a setting has other charges, or if AWS doesn't
return the price just now: no volume waits for its price.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from chalicelib.backends.aws.client import PAGE, Clients
from chalicelib.backends.aws.config import AWSBackendConfig
from chalicelib.backends.aws.facts import FACTS
from chalicelib.backends.aws.network import Networks
from chalicelib.backends.aws.places import (
    SETTLED,
    Body,
    filters,
    regions_of,
    tag_filters,
    tagged,
    tags_of,
)
from chalicelib.backends.aws.prices import Prices
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import REQUEST_TAG, all_tags, owned_volume
from chalicelib.backends.kit.regions import listed_everywhere
from chalicelib.backends.kit.visibility import CREATED, check_settled, is_fresh, stamp
from chalicelib.backends.kit.volumes import DiskPrices, check_unused, disk, machine_of, running
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import BackendError, Gone, InUse, Unfit

NAMES = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")  # for EC2 alone; the kernel has its own
STATES: Mapping[str, str] = {
    "creating": "creating",
    "available": "available",
    "in-use": "in_use",
    "deleting": "deleting",
    "error": "failed",
}
_SHOWN = ("attached", "detaching", "busy")  # an attachment that is complete, and hasn't ended
_UNKNOWN = ("InvalidVolume.NotFound", "InvalidVolumeID.Malformed", "InvalidParameterValue")
_HELD = ("attaching", *_SHOWN)
_INCLUDED: Mapping[str, tuple[int, int]] = {  # operations and MiB a second that cost nothing more, by type
    "gp3": (3_000, 125),
    "gp2": (16_000, 250),
    "st1": (500, 500),
    "sc1": (250, 250),
}


class AwsVolumes:
    def __init__(
        self,
        clients: Clients,
        config: AWSBackendConfig,
        networks: Networks,
        prices: Prices,
        now: Now,
    ) -> None:
        self._clients, self._config, self._networks, self._now = clients, config, networks, now
        self._prices, self._months = prices, DiskPrices(now, self._month)
        self._regions = regions_of(config)

    def create(self, request: VolumeRequest) -> Handle:
        region = request.region
        existing = [*tag_filters({REQUEST_TAG: request.token}), *filters(status=["creating", "available", "in-use"])]
        for body in self._listed(region, existing):
            return _handle(body, region)
        subnets = self._networks.of(region).subnets
        zone = request.zone or min(subnets)
        if zone not in subnets:
            raise Unfit(f"No machine could have a volume in {zone}: the VPC in {region} has no subnet there.")
        tags = {"Name": request.name, **all_tags(request, self._config.tags)}
        created = self._clients.call(
            "ec2",
            region,
            "create_volume",
            AvailabilityZone=zone,
            Size=request.size_gib,
            VolumeType="gp3",
            ClientToken=hashlib.sha256(request.token.encode()).hexdigest(),
            TagSpecifications=tagged(["volume"], tags),
        )
        return _handle(created, region)

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        enabled = self._clients.call("ec2", self._regions[0], "describe_regions")["Regions"]
        if region not in {each["RegionName"] for each in enabled}:
            raise Gone(f"The account has no region {region}.")
        body = self._body(Handle(kind="volume", id=volume_id, data={"region": region}))
        if zone and body["AvailabilityZone"] != zone:
            raise Gone(f"Volume {volume_id} isn't in {zone}: it is in {body['AvailabilityZone']}.")
        return self._disk(body, region)

    def describe(self, handle: Handle) -> ProviderDisk:
        return self._disk(self._body(handle), self._region(handle))

    # --- attach and detach -------------------------------------------------------------------------------------------

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        body, region = self._body(handle), self._region(handle)
        vm = machine_of(machine)
        if _attachment(body, vm.id) in _HELD:
            return
        fresh = is_fresh(vm, self._now(), SETTLED)
        host = running(vm.id, self._host(vm, region), _state_of, ("pending",), ("running",), is_fresh=fresh)
        where = host["Placement"]["AvailabilityZone"]
        if where != body["AvailabilityZone"]:
            raise Unfit(f"Volume {handle.id} is in {body['AvailabilityZone']}, and the machine {vm.id} is in {where}.")
        if body["State"] not in ("available", "in-use"):
            raise InUse(f"Volume {handle.id} is {body['State']}.")
        taken = {mapping["DeviceName"] for mapping in host.get("BlockDeviceMappings", ())}
        if not any(self._attached(handle, vm, name, region) for name in NAMES if name not in taken):
            raise Unfit(f"The machine {vm.id} has no room for another volume.")

    def _attached(self, handle: Handle, vm: Handle, name: str, region: str) -> bool:
        """Attaches it. False if another volume, which AWS doesn't list yet, has this device name."""
        try:
            self._clients.call("ec2", region, "attach_volume", VolumeId=handle.id, InstanceId=vm.id, Device=name)
        except Unfit as error:
            if error.provider_code != "InvalidParameterValue" or "unixDevice" not in str(error):
                raise
            return False
        return True

    def _host(self, vm: Handle, region: str) -> Body | None:
        found = self._clients.pages(
            "ec2",
            vm.data.get("region", region),
            "describe_instances",
            "Reservations",
            Filters=filters(instance_id=vm.id),
        )
        return next((body for reservation in found for body in reservation["Instances"]), None)

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        body, vm = self._body(handle), machine_of(machine)
        if _attachment(body, vm.id) not in ("attaching", "attached", "busy"):
            return
        try:
            self._clients.call("ec2", self._region(handle), "detach_volume", VolumeId=handle.id, InstanceId=vm.id)
        except BackendError as error:
            if error.provider_code not in ("IncorrectState", "InvalidAttachment.NotFound"):  # it is detached already
                raise

    # --- delete and list ---------------------------------------------------------------------------------------------

    def delete(self, handle: Handle) -> None:
        body = self._body(handle)
        held = [str(each["InstanceId"]) for each in body.get("Attachments", ()) if each["State"] in _HELD]
        check_unused(handle.id, held)
        if body["State"] != "deleting":
            self._clients.call("ec2", self._region(handle), "delete_volume", VolumeId=handle.id)

    def list_owned(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        by_tag = filters(tag_key="dstack-volume") if volume_id is None else tag_filters({"dstack-volume": volume_id})
        regions = (region,) if region else self._regions
        return listed_everywhere(regions, lambda region: self._owned(region, by_tag))

    def _owned(self, region: str, by_tag: list[dict[str, object]]) -> Iterator[OwnedVolume]:
        for body in self._listed(region, by_tag):
            yield from owned_volume(_handle(body, region), tags_of(body))

    def _listed(self, region: str, wanted: list[dict[str, object]]) -> Iterator[Body]:
        return self._clients.pages("ec2", region, "describe_volumes", "Volumes", Filters=wanted, MaxResults=PAGE)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _body(self, handle: Handle) -> Body:
        region = self._region(handle)
        try:
            found = self._clients.call("ec2", region, "describe_volumes", VolumeIds=[handle.id])["Volumes"]
        except BackendError as error:
            if error.provider_code not in _UNKNOWN:
                raise
            if ".NotFound" in error.provider_code:
                check_settled([handle], self._now(), FACTS.visibility_lag, "AWS")
            raise Gone(f"Volume {handle.id} isn't in {region}.") from error
        if not found or found[0]["State"] == "deleted":
            raise Gone(f"Volume {handle.id} is deleted.")
        body: Body = found[0]
        return body

    def _region(self, handle: Handle) -> str:
        return handle.data.get("region") or self._regions[0]

    def _disk(self, body: Body, region: str) -> ProviderDisk:
        device, users = Device(serial=str(body["VolumeId"]).replace("-", "")), dict[str, Device | None]()
        for each in body.get("Attachments", ()):
            if each["State"] in _HELD:
                users[str(each["InstanceId"])] = None if each["State"] == "attaching" else device
        return disk(
            _handle(body, region),
            STATES.get(body["State"], "failed"),
            body["Size"],
            users,
            zone=body["AvailabilityZone"],
            price=self._months.of(body["VolumeType"], region, body["Size"]) if _by_size(body) else None,
            offered_to=tuple(tags_of(body).get(OFFERED, "").split()),
            multi_attach=bool(body.get("MultiAttachEnabled")),
        )

    def _month(self, kind: str, region: str, gib: int) -> float | None:
        rate = self._prices.of_volume(kind, region)
        return None if rate is None else rate * gib


def _state_of(machine: Body) -> str:
    return str(machine["State"]["Name"])


def _attachment(body: Body, instance: str) -> str:
    return next((str(each["State"]) for each in body.get("Attachments", ()) if each["InstanceId"] == instance), "")


def _handle(body: Body, region: str) -> Handle:
    data = {"region": region, "zone": str(body["AvailabilityZone"]), CREATED: stamp(body["CreateTime"])}
    return Handle(kind="volume", id=str(body["VolumeId"]), data=data)


def _by_size(body: Body) -> bool:
    operations, throughput = _INCLUDED.get(body["VolumeType"], (-1, -1))
    return int(body.get("Iops", 0)) <= operations and int(body.get("Throughput", 0)) <= throughput

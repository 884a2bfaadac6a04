"""EBS volumes, all kept here: moto's are available at once, and are attached across zones, twice and under one name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.instants import Micros
from tests.backends.aws.account import Account, Handler, fits, page, tag_list, tags_of
from tests.backends.aws.wire import Call, Params, Refusal


@dataclass
class Attachment:
    device: str
    since: Micros  # when it is complete
    until: Micros | None = None  # when it has ended
    goes_with_it: bool = False  # the volume is deleted with the instance


@dataclass
class Volume:
    id: str
    region: str
    zone: str
    params: Params
    made_at: Micros
    ready_at: Micros
    tags: dict[str, str]
    attached: dict[str, Attachment] = field(default_factory=dict)


class Disks:
    def __init__(self, account: Account) -> None:
        self._account = account
        self.all: dict[str, Volume] = {}
        self._tokens: dict[tuple[str, str], str] = {}

    def handlers(self) -> dict[str, Handler]:
        return {
            "CreateVolume": self.create,
            "DescribeVolumes": self.describe,
            "AttachVolume": self.attach,
            "DetachVolume": self.detach,
            "DeleteVolume": self.delete,
        }

    def create(self, call: Call) -> Params:
        account, params = self._account, call.params
        if params["AvailabilityZone"] not in account.places.zones(call):
            raise Refusal("InvalidZone.NotFound", f"The zone '{params['AvailabilityZone']}' does not exist.")
        if params.get("DryRun"):
            raise Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        token = params.get("ClientToken", "")
        if token and (call.region, token) in self._tokens:
            found = self.all.get(self._tokens[call.region, token])
            if found is None or found.params != params:
                raise Refusal("IdempotentParameterMismatch", "The client token was used with other parameters")
            return self._record_program(found)
        now = account.now()
        volume = Volume(
            id=account.new_id("vol"),
            region=call.region,
            zone=params["AvailabilityZone"],
            params=params,
            made_at=now,
            ready_at=now + account.script.ready,
            tags=tags_of(params, "volume"),
        )
        self.all[volume.id] = volume
        if token:
            self._tokens[call.region, token] = volume.id
        return self._record_program(volume)

    def root(self, call: Call, instance: str, zone: str) -> None:
        """The disks that a launch asks for."""
        for mapping in call.params.get("BlockDeviceMappings", [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]):
            now, ebs = self._account.now(), mapping.get("Ebs", {})
            params = {"Size": ebs.get("VolumeSize", 8), "VolumeType": ebs.get("VolumeType", "gp2")}
            with_it = ebs.get("DeleteOnTermination", True)
            made = Volume(
                self._account.new_id("vol"), call.region, zone, params, now, now, tags_of(call.params, "volume")
            )
            made.attached[instance] = Attachment(mapping["DeviceName"], now, goes_with_it=with_it)
            self.all[made.id] = made

    def describe(self, call: Call) -> Params:
        params = call.params
        for identity in params.get("VolumeIds", ()):
            self._known(identity, call.region)
        read: dict[str, Any] = {
            "status": lambda body: body["State"],
            "availability-zone": lambda body: body["AvailabilityZone"],
            "volume-id": lambda body: body["VolumeId"],
        }
        wanted = params.get("VolumeIds")
        found = [
            self._record_program(volume)
            for volume in self.all.values()
            if volume.region == call.region and self._shows(volume) and (not wanted or volume.id in wanted)
        ]
        found = [body for body in found if fits(body, params.get("Filters", []), read)]
        listed, token = page(found, params, self._account.script.page)
        return {"Volumes": listed, **({"NextToken": token} if token else {})}

    def attach(self, call: Call) -> Params:
        account, params = self._account, call.params
        volume = self._known(params["VolumeId"], call.region)
        machine = account.machines.known(params["InstanceId"], call.region)
        state = account.machines.state(machine)
        if state != "running":
            raise Refusal("IncorrectState", f"Instance '{machine.id}' is not 'running'; it is {state}")
        if volume.zone != machine.zone:
            raise Refusal(
                "InvalidVolume.ZoneMismatch", f"The volume '{volume.id}' is not in the same availability zone"
            )
        if (volume.attached and not volume.params.get("MultiAttachEnabled")) or machine.id in volume.attached:
            raise Refusal("VolumeInUse", f"{volume.id} is already attached to an instance")
        if account.now() < volume.ready_at:
            raise Refusal("IncorrectState", f"Volume '{volume.id}' is not 'available'.")
        if params["Device"] in {each.attached[machine.id].device for each in self.on(machine.id)}:
            raise Refusal("InvalidParameterValue", f"Invalid value '{params['Device']}' for unixDevice. It is in use")
        volume.attached[machine.id] = Attachment(params["Device"], account.now() + account.script.attach)
        return self._attachment(volume, machine.id)

    def detach(self, call: Call) -> Params:
        account, params = self._account, call.params
        volume = self._known(params["VolumeId"], call.region)
        instance = params.get("InstanceId") or next(iter(volume.attached), "")
        held = volume.attached.get(instance)
        if held is None:
            raise Refusal("IncorrectState", f"Volume '{volume.id}' is in the 'available' state.")
        if held.until is None:
            held.until = account.now() + account.script.detach
        return self._attachment(volume, instance)

    def delete(self, call: Call) -> Params:
        volume = self._known(call.params["VolumeId"], call.region)
        if volume.attached:
            raise Refusal("VolumeInUse", f"Volume {volume.id} is currently attached to {next(iter(volume.attached))}")
        del self.all[volume.id]
        return {}

    # --- inside ------------------------------------------------------------------------------------------------------

    def add(self, region: str, zone: str, tags: dict[str, str], **params: Any) -> str:
        """A volume that somebody has."""
        now = self._account.now()
        volume = Volume(self._account.new_id("vol"), region, zone, {"Size": 8, **params}, 0, now, tags)
        self.all[volume.id] = volume
        return volume.id

    def on(self, instance: str) -> list[Volume]:
        return [volume for volume in self.all.values() if instance in volume.attached]

    def mappings(self, instance: str) -> list[Params]:
        return [
            {
                "DeviceName": volume.attached[instance].device,
                "Ebs": {"VolumeId": volume.id, "Status": "attached", "DeleteOnTermination": held.goes_with_it},
            }
            for volume in self.on(instance)
            for held in [volume.attached[instance]]
        ]

    def left(self, instance: str) -> None:
        """The instance has ended: what goes with it goes, and the rest is available."""
        for volume in self.on(instance):
            if volume.attached.pop(instance).goes_with_it:
                del self.all[volume.id]

    def age(self) -> None:
        now = self._account.now()
        for volume in self.all.values():
            for instance in [each for each, held in volume.attached.items() if held.until and held.until <= now]:
                del volume.attached[instance]

    def _known(self, identity: str, region: str) -> Volume:
        if not re.fullmatch(r"vol-[0-9a-f]{8,17}", identity):
            raise Refusal("InvalidParameterValue", f"Value ({identity}) for parameter volumeId is invalid.")
        volume = self.all.get(identity)
        if volume is None or volume.region != region or not self._shows(volume):
            raise Refusal("InvalidVolume.NotFound", f"The volume '{identity}' does not exist.")
        return volume

    def _shows(self, volume: Volume) -> bool:
        return self._account.now() >= volume.made_at + self._account.script.lag

    def _record_program(self, volume: Volume) -> Params:
        creating = self._account.now() < volume.ready_at
        return {
            "VolumeId": volume.id,
            "AvailabilityZone": volume.zone,
            "Size": volume.params.get("Size", 8),
            "VolumeType": volume.params.get("VolumeType", "gp2"),
            **_performance(volume.params),
            "State": "creating" if creating else "in-use" if volume.attached else "available",
            "CreateTime": self._account.at(volume.made_at),
            "MultiAttachEnabled": bool(volume.params.get("MultiAttachEnabled")),
            "Tags": tag_list(volume.tags),
            "Attachments": [self._attachment(volume, each) for each in volume.attached],
        }

    def _attachment(self, volume: Volume, instance: str) -> Params:
        held, now = volume.attached[instance], self._account.now()
        state = "detaching" if held.until is not None else "attached" if held.since <= now else "attaching"
        return {
            "VolumeId": volume.id,
            "InstanceId": instance,
            "Device": held.device,
            "State": state,
            "DeleteOnTermination": held.goes_with_it,
        }


def _performance(params: Params) -> Params:
    """What AWS shows of it: of gp3 both, of gp2 what comes with its size."""
    kind = params.get("VolumeType", "gp2")
    if kind == "gp3":
        return {"Iops": params.get("Iops", 3000), "Throughput": params.get("Throughput", 125)}
    return {"Iops": params.get("Iops", 100)} if kind in ("gp2", "io1", "io2") else {}

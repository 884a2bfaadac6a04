"""Network volumes. A pod mounts the one that it is created with, so nothing is attached afterwards, and a volume is
detached when its pods have ended. They are billed with or without pods.

They have no tags. Whoever owns an existing one offers it to projects by its name: `data dstack-projects=main,other`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import owned_volume
from chalicelib.backends.kit.visibility import is_fresh
from chalicelib.backends.runpod.client import Body, Client
from chalicelib.backends.runpod.clusters import id_of, is_node
from chalicelib.backends.runpod.facts import FACTS
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import Gone, InUse, NotYet, Unfit

OFFER = re.compile(rf"(?:^|\s){OFFERED}=(\S+)")
VOLUME = "volume"  # the kind of their handles
SMALLEST, LARGEST = 10, 4096  # GB
TERABYTE = 1000  # GB, from which on each costs less
PRICE, PRICE_BEYOND = 0.07, 0.05  # a GB a month, of the standard type


class NetworkVolumes:
    def __init__(self, client: Client, now: Now) -> None:
        self._client, self._now = client, now

    def create(self, request: VolumeRequest) -> Handle:
        """By its name, what an earlier call made; the first, should there be two."""
        made = sorted(str(each["id"]) for each in self._listed() if each["name"] == request.name)
        if made:
            return _handle(made[0])
        body = {"name": request.name, "size": max(SMALLEST, request.size_gib), "dataCenter": request.region}
        return _handle(self._client.call("POST", "network-volumes", body=body, region=request.region)["id"])

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        body = self._body(volume_id)
        if body["dataCenter"] != region or zone:
            raise Gone(f"The network volume {volume_id} is in {body['dataCenter']}.")
        return self._disk(body)

    def describe(self, handle: Handle) -> ProviderDisk:
        return self._disk(self._body(handle.id))

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        """Raises Unfit for a pod that was created without it, and NotYet for one that isn't listed yet."""
        self._body(handle.id)
        pods = {each.id for each in machine}
        if pods.isdisjoint(self._users(handle.id)):
            if any(is_node(each) or is_fresh(each, self._now(), FACTS.visibility_lag) for each in machine):
                raise NotYet(f"Runpod doesn't show yet whether {handle.id} is mounted.")
            names = ", ".join(sorted(pods)) or "without a handle"
            raise Unfit(f"The pod {names} doesn't mount {handle.id}, and a pod gets a volume only from its beginning.")

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        """It is detached when its pod has ended."""
        self._body(handle.id)

    def delete(self, handle: Handle) -> None:
        if users := self._users(handle.id):
            self._body(handle.id)
            raise InUse(f"The network volume {handle.id} is mounted by {', '.join(users)}.")
        self._client.call("DELETE", "network-volumes", handle.id, meanings={409: InUse})

    def list_owned(self, volume_id: str | None, region: str) -> Iterator[OwnedVolume]:
        for body in list(self._listed()):
            if region in ("", body["dataCenter"]):
                yield from owned_volume(_handle(body["id"]), {}, body["name"], only=volume_id)

    def _listed(self) -> Iterator[Body]:
        return self._client.listed("network-volumes", "networkVolumes")

    def _body(self, volume: str) -> Body:
        found: Body = self._client.call("GET", "network-volumes", volume)
        return found

    def _users(self, volume: str) -> list[str]:
        """The pods that mount it, whoever's they are."""
        pods = self._client.listed("pods", "pods", includeClusterPods="true")
        using = (pod for pod in pods if pod["status"] != "TERMINATED" and volume in _mounted(pod))
        return sorted(id_of(pod) for pod in using)

    def _disk(self, body: Body) -> ProviderDisk:
        users, size = self._users(str(body["id"])), int(body["size"])
        offered = OFFER.search(str(body["name"]))
        price = PRICE * min(size, TERABYTE) + PRICE_BEYOND * max(0, size - TERABYTE)
        return ProviderDisk(
            handle=_handle(body["id"]),
            state="in_use" if users else "available",
            size_gib=size,
            offered_to=tuple(filter(None, offered[1].split(","))) if offered else (),
            price=round(price, 2) if body["type"] == "STANDARD" else None,
            multi_attach=True,
            attached_to=tuple((each, Device(by_id=str(body["id"]))) for each in users),
        )


def _mounted(pod: Body) -> Iterator[str]:
    return (str(each["volumeId"]) for each in (pod.get("mounts") or {}).get("network") or ())


def _handle(volume: object) -> Handle:
    return Handle(kind=VOLUME, id=str(volume))

"""Volumes of a cluster: persistent volume claims in its namespace.

A pod mounts the claims that it is created with, so nothing is attached afterwards, and a claim is detached when its pod
has ended. A claim may wait for its first pod before its disk is made: that isn't a failure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from chalicelib.backends.kit.owners import REQUEST_TAG, all_tags, owned_volume
from chalicelib.backends.kit.regions import everywhere
from chalicelib.backends.kit.visibility import if_there
from chalicelib.backends.kubernetes.labels import labels_of, tags_of
from chalicelib.backends.kubernetes.quantities import parsed
from chalicelib.backends.kubernetes.usage import takes_resources
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import AlreadyThere, Gone, InUse, Transient, Unfit

if TYPE_CHECKING:
    from chalicelib.backends.kubernetes.client import Clusters
    from chalicelib.backends.kubernetes.identities import Identities

Body = dict[str, Any]
CLAIM = "claim"  # the kind of their handles
READ_ONLY = "ReadOnlyMany"
SEVERAL = ("ReadWriteMany", READ_ONLY)  # modes in which pods on several nodes can have it
GIB = 1 << 30


class Claims:
    def __init__(self, clusters: Clusters, identities: Identities) -> None:
        self._clusters, self._identities = clusters, identities

    def create(self, request: VolumeRequest) -> Handle:
        region, name = request.region, f"dstack-{sha256(request.token.encode()).hexdigest()[:20]}"
        try:
            return self._identities.handle(self._adopted(request, name), region, CLAIM)
        except Gone:
            pass
        path = self._path(region)
        try:
            made = self._clusters.call(region, "POST", path, body=_claim(request, name), meanings={"NotFound": Unfit})
        except AlreadyThere:  # a call at the same time
            made = self._adopted(request, name)
        return self._identities.handle(made, region, CLAIM)

    def _adopted(self, request: VolumeRequest, name: str) -> Body:
        found = self._clusters.call(request.region, "GET", (*self._path(request.region), name))
        if tags_of(found).get(REQUEST_TAG) != request.token:
            raise AlreadyThere(f"The name {name} is taken in {request.region} by a claim that dstack didn't create.")
        return found

    def register(self, claim: str, region: str, zone: str) -> ProviderDisk:
        if region not in self._clusters.regions:
            raise Gone(f"There is no context {region!r}: there are {', '.join(self._clusters.regions)}.")
        if zone:
            raise Gone("A claim of a cluster isn't looked for in a zone.")
        return self._disk(self._clusters.call(region, "GET", (*self._path(region), claim)), region)

    def describe(self, handle: Handle) -> ProviderDisk:
        return self._disk(self._body(handle), self._region(handle))

    # --- attachments follow from pods ---------------------------------------------------------------------------------

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        """Raises Unfit for a pod that was created without it, and Transient for one that doesn't show (yet)."""
        self._body(handle)
        pods = [pod for each in machine if (pod := self._pod(each)) is not None]
        if not pods:
            named = ", ".join(sorted(each.id for each in machine)) or "that is to mount it"
            raise Transient(f"The pod {named} doesn't exist (yet).")
        if not any(handle.id in _mounted(pod) for pod in pods):
            named = ", ".join(pod["metadata"]["name"] for pod in pods)
            raise Unfit(f"The pod {named} doesn't mount {handle.id}, and a pod gets volumes only from its beginning.")

    def _pod(self, handle: Handle) -> Body | None:
        region = self._region(handle)
        namespace = handle.data.get("namespace") or self._clusters.cluster(region).namespace
        path = ("api", "v1", "namespaces", namespace, "pods", handle.id)
        return if_there(lambda: self._clusters.call(region, "GET", path))

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        """It is detached when its pod has ended."""
        self._body(handle)

    def _users(self, region: str, claim: str) -> list[str]:
        """Our pods that mount it."""
        namespace = self._clusters.cluster(region).namespace
        listed = self._clusters.listed(
            region, ("api", "v1", "namespaces", namespace, "pods"), labelSelector="dstack-instance"
        )
        return sorted(pod["metadata"]["name"] for pod in listed if takes_resources(pod) and claim in _mounted(pod))

    # --- delete and list ----------------------------------------------------------------------------------------------

    def delete(self, handle: Handle) -> None:
        body, region = self._body(handle), self._region(handle)
        if users := self._users(region, handle.id):
            raise InUse(f"The claim {handle.id} is mounted by {', '.join(users)}.")
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": body["metadata"]["uid"]},
        }
        path = (*self._path(region, handle), handle.id)
        self._clusters.call(region, "DELETE", path, body=options, meanings={"Conflict": Gone})

    def list_owned(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        wanted = "dstack-volume" if volume_id is None else f"dstack-volume={volume_id}"
        regions = (region,) if region else self._clusters.regions

        def listed(there: str) -> list[tuple[str, Body]]:
            return [(there, body) for body in self._clusters.listed(there, self._path(there), labelSelector=wanted)]

        for found in everywhere(regions, listed):
            for there, body in found:
                yield from owned_volume(self._identities.handle(body, there, CLAIM), tags_of(body))

    # --- reading ------------------------------------------------------------------------------------------------------

    def _body(self, handle: Handle) -> Body:
        region = self._region(handle)
        with self._identities.checked(region, handle):
            found = self._clusters.call(region, "GET", (*self._path(region, handle), handle.id))
        if handle.data.get("uid", found["metadata"]["uid"]) != found["metadata"]["uid"]:
            raise Gone(f"The claim {handle.id} was deleted; a newer one has its name.")
        return found

    def _disk(self, body: Body, region: str) -> ProviderDisk:
        name, status = body["metadata"]["name"], body.get("status", {})
        users, modes = self._users(region, name), {*body["spec"].get("accessModes", ())}
        size = status.get("capacity", {}).get("storage") or body["spec"]["resources"]["requests"]["storage"]
        state = "in_use" if users else "available"
        if "deletionTimestamp" in body["metadata"]:
            state = "deleting"
        elif status.get("phase") == "Lost":
            state = "failed"
        return ProviderDisk.model_validate(
            {
                "handle": self._identities.handle(body, region, CLAIM),
                "state": state,
                "size_gib": max(1, math.floor(parsed(size) / GIB)),
                "multi_attach": not modes.isdisjoint(SEVERAL),
                "writable": modes != {READ_ONLY},
                "attached_to": tuple((each, Device(by_id=name)) for each in users),
                "offered_to": tuple(body["metadata"].get("annotations", {}).get(OFFERED, "").split()),
            }
        )

    def _region(self, handle: Handle) -> str:
        return handle.data.get("region") or self._clusters.regions[0]

    def _path(self, region: str, handle: Handle | None = None) -> tuple[str, ...]:
        namespace = handle.data.get("namespace") if handle else None
        where = namespace or self._clusters.cluster(region).namespace
        return ("api", "v1", "namespaces", where, "persistentvolumeclaims")


def _claim(request: VolumeRequest, name: str) -> Body:
    labels, annotations = labels_of(all_tags(request))
    written = request.configuration
    spec: Body = {
        "accessModes": list(written.get("access_modes") or ("ReadWriteOnce",)),
        "resources": {"requests": {"storage": f"{request.size_gib}Gi"}},
    }
    if written.get("storage_class_name") is not None:
        spec["storageClassName"] = written["storage_class_name"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def _mounted(pod: Mapping[str, Any]) -> set[str]:
    volumes = pod["spec"].get("volumes", ())
    return {each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each}

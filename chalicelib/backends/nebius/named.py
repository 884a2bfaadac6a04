"""What is created once under its name: Nebius has no two resources of a kind with one name in a project.

A repeated creation has the same key, and Nebius answers it with what the first one began. It doesn't say how long it
knows a key, so what has the name is looked up first, and it is ours if its labels say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.kit.owners import all_tags
from chalicelib.backends.nebius.client import NebiusClient, action
from chalicelib.backends.nebius.errors import OF_CREATION, of_status
from chalicelib.backends.nebius.labels import labels_of
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.spi import CreateRequest, GroupRequest, VolumeRequest
from chalicelib.errors import AlreadyThere, BackendError, Gone, Transient


@dataclass(frozen=True)
class Made:
    id: str
    at: str  # when it was created, as Nebius writes it
    over: bool = False  # its creation has ended, whichever way
    failed: BackendError | None = None  # why, if it did; something may be left of it


class Named:
    def __init__(self, client: NebiusClient, places: Places, tags: Mapping[str, str] | None) -> None:
        """`tags`: the account's own."""
        self._client, self._places, self._tags = client, places, tags

    def made(
        self,
        service: str,
        noun: str,
        request: CreateRequest | VolumeRequest | GroupRequest,
        region: str,
        spec: Callable[[], Mapping[str, Any]],
        *,
        key: str,
        what: str = "",
        secrets: Sequence[str] = (),
    ) -> Made:
        """Raises why a creation has failed already, unless it may have left something that is billed."""
        named = {"parent_id": self._places.project(region), "name": request.name}
        if made := self._existing(service, noun, request, region, named):
            return made
        metadata, what = {**named, "labels": labels_of(all_tags(request, self._tags))}, what or request.name
        body = {"metadata": metadata, "spec": spec()}
        try:
            operation = self._client.call(
                service, "Create", body, region=region, what=what, key=key, meanings=OF_CREATION, secrets=secrets
            )
        except AlreadyThere:
            if made := self._existing(service, noun, request, region, named):
                return made
            raise Transient(f"{region} has a {noun} {request.name}, and doesn't show it yet.") from None
        failed = of_status(operation.get("status", {}), action(service, "Create", what), region)
        if failed is not None and not operation.get("resource_id"):
            raise failed
        begun = str(operation.get("created_at", ""))
        return Made(str(operation["resource_id"]), begun, "status" in operation, failed)

    def _existing(
        self,
        service: str,
        noun: str,
        request: CreateRequest | VolumeRequest | GroupRequest,
        region: str,
        named: Mapping[str, str],
    ) -> Made | None:
        try:
            found = self._client.call(service, "GetByName", named, region=region, what=request.name)["metadata"]
        except Gone:
            return None
        if labels_of(dict(request.tags)).items() - found.get("labels", {}).items():
            raise AlreadyThere(f"{region} has a {noun} {request.name} that isn't ours.")
        return Made(str(found["id"]), str(found.get("created_at", "")))

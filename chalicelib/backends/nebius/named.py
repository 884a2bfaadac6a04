"""What is created once under its name: Nebius has no two resources of a kind with one name in a project.

A repeated creation has the same key, and Nebius answers it with what the first one began. It doesn't say how long it
knows a key, so what has the name is looked up first, and it is ours if its labels say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.kit.errors import Kind
from chalicelib.backends.nebius.client import NebiusClient, action
from chalicelib.backends.nebius.errors import OF_CREATION, of_status
from chalicelib.errors import AlreadyThere, BackendError, Gone, Transient


@dataclass(frozen=True)
class Made:
    id: str
    at: str  # when it was created, as Nebius writes it
    over: bool = False  # its creation has ended, whichever way
    failed: BackendError | None = None  # why, if it did; something may be left of it


def created_once(
    client: NebiusClient,
    service: str,
    noun: str,
    metadata: Mapping[str, Any],
    spec: Callable[[], Mapping[str, Any]],
    is_ours: Callable[[Mapping[str, str]], bool],
    *,
    region: str,
    key: str,
    what: str = "",
    meanings: Mapping[str | int, Kind] = OF_CREATION,
    secrets: Sequence[str] = (),
) -> Made:
    """`metadata`: with project, name and labels. `is_ours` reads the labels of what has the name. Raises why a creation
    has failed already, unless it may have left something that is billed."""
    named = {"parent_id": metadata["parent_id"], "name": metadata["name"]}

    def existing() -> Made | None:
        try:
            found = client.call(service, "GetByName", named, region=region, what=named["name"])["metadata"]
        except Gone:
            return None
        if not is_ours(found.get("labels", {})):
            raise AlreadyThere(f"{region} has a {noun} {named['name']} that isn't ours.")
        return Made(str(found["id"]), str(found.get("created_at", "")))

    if made := existing():
        return made
    body, what = {"metadata": metadata, "spec": spec()}, what or named["name"]
    try:
        operation = client.call(
            service, "Create", body, region=region, what=what, key=key, meanings=meanings, secrets=secrets
        )
    except AlreadyThere:
        if made := existing():
            return made
        raise Transient(f"{region} has a {noun} {named['name']}, and doesn't show it yet.") from None
    failed = of_status(operation.get("status", {}), action(service, "Create", what), region)
    if failed is not None and not operation.get("resource_id"):
        raise failed
    begun = str(operation.get("created_at", ""))
    return Made(str(operation["resource_id"]), begun, "status" in operation, failed)

"""What is created once under its name: Nebius has no two resources of a kind with one name in a project.

A repeated creation has the same key, and Nebius answers it with what the first one began. It doesn't say how long it
knows a key, so what has the name is looked up first, and it is ours if its labels say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.errors import Kind
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.errors import OF_CREATION
from chalicelib.errors import AlreadyThere, Gone, Transient


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
) -> str:
    """Its id. `metadata`: with project, name and labels. `is_ours` reads the labels of what has the name."""
    named = {"parent_id": metadata["parent_id"], "name": metadata["name"]}

    def existing() -> str:
        try:
            found = client.call(service, "GetByName", named, region=region, what=named["name"])["metadata"]
        except Gone:
            return ""
        if not is_ours(found.get("labels", {})):
            raise AlreadyThere(f"{region} has a {noun} {named['name']} that isn't ours.")
        return str(found["id"])

    if identity := existing():
        return identity
    body = {"metadata": metadata, "spec": spec()}
    try:
        operation = client.started(
            service,
            "Create",
            body,
            region=region,
            what=what or named["name"],
            key=key,
            meanings=meanings,
            secrets=secrets,
        )
    except AlreadyThere:
        if identity := existing():
            return identity
        raise Transient(f"{region} has a {noun} {named['name']}, and doesn't show it yet.") from None
    return str(operation["resource_id"])

"""Azure's resources, regions, zones and tags.

A resource's id is its address: subscription, resource group, type and name. Azure answers with them in any case, and
with regions as `West Europe` or `westeurope`. Zones are numbers that mean something in their region alone, and in one
subscription, so ours have the region before them: `westeurope-1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.backends.azure.config import AzureBackendConfig
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.owners import LabelRule
from chalicelib.backends.kit.tables import table
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import LONGEST

Body = Mapping[str, Any]

_TABLE = table("azure/places.toml")
REGIONS = tuple[str, ...](_TABLE["regions"])  # the usual ones; a configuration may name others
VERSIONS: Mapping[str, str] = _TABLE["versions"]
TYPES: Mapping[str, str] = _TABLE["types"]
GROUP = "dstack"  # the resource group, unless one is given

VM, NIC, ADDRESS, DISK, VOLUME = "vm", "nic", "address", "disk", "volume"  # kinds of handles
# Upper and lower case are one key to Azure.
TAGS = LabelRule(key=r"[^<>&\\%?/]{1,512}", value=r"(?s).{0,256}", most=50)


def regions_of(config: AzureBackendConfig) -> tuple[str, ...]:
    """Those named, or those that networks are given for, or the usual ones."""
    given = config.regions or (*sorted({**(config.vpc_ids or {}), **(config.subnet_ids or {})}),)
    return tuple(map(region_named, given or REGIONS))


def region_named(name: str) -> str:
    return name.lower().replace(" ", "")


def zone_named(region: str, number: str) -> str:
    return f"{region}-{number}"


def number_of(zone: str) -> str:
    return zone.rpartition("-")[2]


class Ids:
    """The addresses of resources in one resource group."""

    def __init__(self, subscription: str, group: str) -> None:
        self.subscription, self.group = subscription, group

    def of(self, kind: str, name: str, group: str = "") -> str:
        return f"{self.all_of(kind, group)}/{name}"

    def all_of(self, kind: str, group: str = "") -> str:
        return f"{self.in_group(group)}/providers/{TYPES[kind]}"

    def in_group(self, group: str = "") -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{group or self.group}"

    def at(self, kind: str, identity: str) -> str:
        """The address that a handle's id is, or that of the resource with this name."""
        return identity if identity.startswith("/") else self.of(kind, identity)


def name_of(identity: str) -> str:
    return identity.rpartition("/")[2].lower()


def group_of(identity: str) -> str:
    """Its resource group's name; empty if the id names none."""
    parts = identity.split("/")
    return parts[4].lower() if len(parts) > 4 else ""


def owner_name(name: str) -> str:
    """The name that tells an owner, without what Azure adds to names of what it makes along with a machine."""
    return name.lower()[:LONGEST]


def tags_of(body: Body) -> dict[str, str]:
    return {key.lower(): str(value) for key, value in (body.get("tags") or {}).items()}


def region_of(body: Body) -> str:
    return region_named(str(body.get("location", "")))


def zone_of(body: Body) -> str:
    """Empty: it is bound to none."""
    zones = body.get("zones") or ()
    return zone_named(region_of(body), str(zones[0])) if zones else ""


def properties(body: Body) -> Body:
    found: Body = body.get("properties") or {}
    return found


def state_of(body: Body) -> str:
    """Of its creation, change or deletion, in lower case."""
    return str(properties(body).get("provisioningState", "")).lower()


def handle_of(kind: str, path: str, body: Body, **more: str) -> Handle:
    created = properties(body).get("timeCreated")
    return located(kind, path, region_of(body), zone=zone_of(body), created=created if kind == VM else None, **more)

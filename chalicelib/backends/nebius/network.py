"""Security groups. A network's own group lets the whole world in, so machines get one of ours.

Its rules let in the installation's other machines, and let out everything. A gateway has a second group, which opens
its ports. The groups are found by their names, made with the first machine, and stay: they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.errors import OF_CREATION
from chalicelib.backends.nebius.places import Places
from chalicelib.domain.owner import mark
from chalicelib.errors import AlreadyThere, Gone

WORLD = "0.0.0.0/0"
_GROUPS, _RULES = "vpc.v1.SecurityGroupService", "vpc.v1.SecurityRuleService"


class NebiusNetworks:
    def __init__(self, client: NebiusClient, places: Places, tags: Mapping[str, str] | None, now: Now) -> None:
        self._client, self._places, self._tags = client, places, dict(tags or {})
        self._groups = LookupCache[str](now)

    def groups(self, region: str, install: str, open_ports: Sequence[int]) -> tuple[str, ...]:
        """The groups of a machine."""
        name = f"dstack-{mark(install)}"
        found = (self._groups.get(f"{region} {name}", lambda: self._ready(region, name, install, _between)),)
        if open_ports:
            door = f"{name}-{'-'.join(map(str, sorted(open_ports)))}"
            rules = _opening(open_ports)
            return *found, self._groups.get(f"{region} {door}", lambda: self._ready(region, door, install, rules))
        return found

    def forget(self) -> None:
        self._groups.clear()

    def _ready(self, region: str, name: str, install: str, rules: Callable[[str], Mapping[str, Any]]) -> str:
        """The group with all its rules, whatever of them is there already."""
        group = self._group(region, name, install)
        listed = self._client.listed(_RULES, {"parent_id": group}, region=region)
        existing = {str(each["metadata"].get("name", "")) for each in listed}
        for rule, spec in rules(group).items():
            if rule not in existing:
                body = {"metadata": {"parent_id": group, "name": rule}, "spec": {"access": "ALLOW", **spec}}
                self._made(_RULES, body, region)
        return group

    def _group(self, region: str, name: str, install: str) -> str:
        project, subnet = self._places.project(region), self._places.subnet(region)
        named = {"parent_id": project, "name": name}
        try:
            found = self._client.call(_GROUPS, "GetByName", named, region=region)
        except Gone:
            body = {
                "metadata": {**named, "labels": {**self._tags, "dstack-install": install}},
                "spec": {"network_id": subnet.network},
            }
            made = self._made(_GROUPS, body, region)
            if made:
                return made
            found = self._client.call(_GROUPS, "GetByName", named, region=region)
        return str(found["metadata"]["id"])

    def _made(self, service: str, body: Mapping[str, Any], region: str) -> str:
        """Its id; empty if it was made at the same time elsewhere: a name is there once."""
        what = str(body["metadata"]["name"])
        try:
            operation = self._client.started(service, "Create", body, region=region, what=what, meanings=OF_CREATION)
        except AlreadyThere:
            return ""
        return str(operation["resource_id"])


def _between(group: str) -> Mapping[str, Any]:
    return {
        "within": {"protocol": "ANY", "ingress": {"source_security_group_id": group}},
        "out": {"protocol": "ANY", "egress": {"destination_cidrs": [WORLD]}},
    }


def _opening(ports: Sequence[int]) -> Callable[[str], Mapping[str, Any]]:
    rule = {"protocol": "TCP", "ingress": {"source_cidrs": [WORLD], "destination_ports": sorted(ports)}}
    return lambda group: {"open": rule}

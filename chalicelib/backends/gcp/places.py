"""Regions, zones and labels, for several of Google's calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import LABEL_KEY, LABEL_VALUE, MOST_LABELS, GCPBackendConfig
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.owners import LabelRule
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND, Micros

RULE = LabelRule(LABEL_KEY, LABEL_VALUE, MOST_LABELS)


@dataclass(frozen=True)
class GcpRegion:
    name: str
    zones: tuple[str, ...]
    quotas: Mapping[str, float]  # limits by metric


class GcpPlaces:
    def __init__(self, clients: GcpClients, config: GCPBackendConfig, now: Now) -> None:
        self._clients, self._wanted = clients, config.regions
        self._regions: LookupCache[Mapping[str, GcpRegion]] = LookupCache(now)

    def all(self) -> Mapping[str, GcpRegion]:
        """Every region of the project, by name."""
        return self._regions.get(
            "", lambda: {each["name"]: _region(each) for each in self._clients.pages("regions.list")}
        )

    def zones(self, region: str) -> tuple[str, ...]:
        found = self.all().get(region)
        return found.zones if found else ()

    def used(self) -> Sequence[GcpRegion]:
        """Those that the account uses."""
        found = self.all()
        return [found[name] for name in self._wanted or sorted(found) if name in found]

    def forget(self) -> None:
        self._regions.clear()


def last(url: str) -> str:
    """The name at the end of a resource's address."""
    return url.rpartition("/")[2]


def region_of(zone: str) -> str:
    """`us-central1` of `us-central1-a`, and of `us-central1-ai1a`."""
    return zone.rpartition("-")[0]


def zone_of(handle: Handle) -> str:
    return handle.data.get("zone") or f"{handle.data.get('region', 'none')}-a"


def handle_of(kind: str, name: str, zone: str, created: object = None) -> Handle:
    """`created`: when, as Google writes it."""
    return located(kind, name, region_of(zone), zone=zone, created=created)


def instant(text: str) -> Micros:
    """A time as Google writes it, in whatever zone."""
    return round(datetime.fromisoformat(text).timestamp() * SECOND) if text else 0


def _region(body: Body) -> GcpRegion:
    quotas = {str(each["metric"]): float(each.get("limit", 0)) for each in body.get("quotas", ())}
    return GcpRegion(str(body["name"]), tuple(sorted(map(last, body.get("zones", ())))), quotas)

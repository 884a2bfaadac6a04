"""Checks that the credentials work, that they may read what is needed, and that each region can be used. All problems
are reported at once.

Nothing that changes anything is called, and Nebius has no rehearsal: whether the account may create machines shows when
it creates one.
"""

from __future__ import annotations

import logging
from functools import partial

from chalicelib.backends.kit.checking import problems, report
from chalicelib.backends.kit.regions import listed_everywhere
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.launch import DISK
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.nebius.prices import create, hourly
from chalicelib.errors import BackendError

_OF_A_PROJECT = (
    "compute.v1.PlatformService",
    "compute.v1.InstanceService",
    "compute.v1.DiskService",
    "compute.v1.GpuClusterService",
    "vpc.v1.SecurityGroupService",
)
_OF_THE_TENANT = (  # hints; without them, availability is unknown
    "capacity.v1.CapacityBlockGroupService",
    "capacity.v1.ResourceAdviceService",
    "quotas.v1.QuotaAllowanceService",
)
_PRICED = {"type": DISK, "size_gibibytes": "1"}

log = logging.getLogger(__name__)


def check(client: NebiusClient, places: Places) -> None:
    """Raises InvalidCredentials, MissingPermission with everything that is denied, or Unfit."""
    places.forget()
    regions = sorted(places.projects())
    found = list(listed_everywhere(regions, lambda region: _region(client, places, region)))
    for error in problems(*(partial(_first, client, service, places.tenant()) for service in _OF_THE_TENANT)):
        log.warning("what Nebius says of capacity stays unknown: %s", error)
    report(found)


def _region(client: NebiusClient, places: Places, region: str) -> list[BackendError]:
    return problems(
        lambda: places.subnet(region),
        *(partial(_first, client, service, places.project(region), region) for service in _OF_A_PROJECT),
        lambda: hourly(client, region, [create("Disk", places.project(region), DISK, _PRICED)]),
    )


def _first(client: NebiusClient, service: str, parent: str, region: str = "") -> None:
    client.call(service, "List", {"parent_id": parent, "page_size": "1"}, region=region)

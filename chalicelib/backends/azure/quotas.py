"""Quotas: how many vCPUs a subscription may have in a region, of a family and altogether, and of all spot machines.

New subscriptions have none for most GPU families, so a plan marks offers that can't be bought. A quota that Azure
doesn't report counts as unknown, never as too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.sizes import AzureSize
from chalicelib.backends.kit.hints import hint
from chalicelib.domain.offers import Availability, ClusterLimit
from chalicelib.errors import BackendError

Quotas = Mapping[str, int]  # limits in vCPUs, by name in lower case
REGIONAL, SPOT = "cores", "lowprioritycores"


def quotas(client: AzureClient, region: str) -> Quotas:
    """A region's quotas; none if the login may not read them."""
    path = f"/subscriptions/{client.ids.subscription}/providers/Microsoft.Compute/locations/{region}/usages"
    return hint(
        lambda: {str(each["name"]["value"]).lower(): int(each["limit"]) for each in client.listed(path, region=region)},
        {},
        f"the quotas of {region}",
        BackendError,
    )


def availability(found: Quotas, size: AzureSize, *, spot: bool) -> Availability:
    """Whether one machine fits into its quotas. That Azure lists a size doesn't mean that it has one."""
    short = any(limit < size.vcpus for _, limit in _limits(found, size, spot=spot))
    return Availability.no_quota if short else Availability.unknown


def of_clusters(found: Quotas, size: AzureSize, region: str, *, spot: bool) -> ClusterLimit | None:
    """How many machines a cluster can have, if that is known."""
    name, limit = min(_limits(found, size, spot=spot), key=lambda pair: pair[1], default=("", 0))
    if not name or limit < size.vcpus:
        return None  # which is said of each machine
    return ClusterLimit(
        most=limit // size.vcpus,
        why=f"each takes {size.vcpus} of the {limit} vCPUs that the quota {name} allows in {region}",
        hint="ask Azure for more, under Quotas in its portal",
    )


def _limits(found: Quotas, size: AzureSize, *, spot: bool) -> Iterator[tuple[str, int]]:
    """Those that a machine counts against."""
    for name in (SPOT,) if spot else (size.family, REGIONAL):
        if (limit := found.get(name.lower())) is not None:
            yield name, limit

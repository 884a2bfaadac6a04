"""The table of `dstack volume`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import age, gigabytes, money, place, status_cell

if TYPE_CHECKING:
    from chalicelib import contract

PLAIN = ("NAME", "BACKEND", "STATUS", "CREATED")
VERBOSE = ("NAME", "BACKEND", "REGION", "SIZE", "STATUS", "ATTACHED", "COST", "CREATED", "ERROR")


def volumes_table(volumes: Sequence[contract.Volume], now: float, verbose: bool = False) -> Table:
    titles = VERBOSE if verbose else PLAIN
    table = Table(titles, below=("ERROR",))
    for volume in sorted(volumes, key=lambda found: found["created_at"], reverse=True):
        row = _row(volume, now, verbose)
        table.add(*(row[title] for title in titles))
    return table


def _row(volume: contract.Volume, now: float, verbose: bool) -> dict[str, str | Cell]:
    configuration, provisioned = volume["configuration"], volume["provisioning_data"]
    region, zone = configuration.get("region"), configuration.get("availability_zone")
    size, priced = configuration.get("size"), True
    if provisioned is not None:
        zone, size = provisioned["availability_zone"] or zone, provisioned["size_gb"] or size
        priced = provisioned["price"] is not None
    return {
        "NAME": Cell(volume["name"], "bold"),
        "BACKEND": str(configuration.get("backend")) if verbose else place(configuration.get("backend"), region),
        "REGION": f"{region} ({zone})" if region and zone else region or "-",
        "SIZE": gigabytes(size) if size else "-",
        "STATUS": status_cell(volume["status"]),
        "ATTACHED": ", ".join(_holders(volume)) or "-",
        "COST": money(volume["cost"]) if priced else "-",
        "CREATED": age(volume["created_at"], now),
        "ERROR": volume["status_message"] or "",
    }


def _holders(volume: contract.Volume) -> list[str]:
    """The fleets whose machines have the volume attached."""
    found = (each["instance"]["fleet_name"] or each["instance"]["name"] for each in volume["attachments"])
    return list(dict.fromkeys(found))

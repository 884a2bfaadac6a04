"""The table of `dstack volume`."""

from __future__ import annotations

from typing import Any

from cli.screen.render import Cell, Table
from cli.tables.cells import Json, age, gigabytes, money, place, status_cell

PLAIN = ("NAME", "BACKEND", "STATUS", "CREATED")
VERBOSE = ("NAME", "BACKEND", "REGION", "SIZE", "STATUS", "ATTACHED", "COST", "CREATED", "ERROR")


def volumes_table(volumes: list[Json], now: float, verbose: bool = False) -> Table:
    titles = VERBOSE if verbose else PLAIN
    table = Table(titles, below=("ERROR",))
    for volume in sorted(volumes, key=lambda found: str(found.get("created_at") or ""), reverse=True):
        row = _row(volume, now, verbose)
        table.add(*(row[title] for title in titles))
    return table


def _row(volume: Json, now: float, verbose: bool) -> dict[str, Any]:
    configuration, provisioned = volume["configuration"], volume.get("provisioning_data") or {}
    region, zone = (
        configuration.get("region"),
        provisioned.get("availability_zone") or configuration.get("availability_zone"),
    )
    size = provisioned.get("size_gb") or configuration.get("size")
    return {
        "NAME": Cell(str(volume["name"]), "bold"),
        "BACKEND": str(configuration.get("backend")) if verbose else place(configuration.get("backend"), region),
        "REGION": f"{region} ({zone})" if region and zone else region or "-",
        "SIZE": gigabytes(size) if size else "-",
        "STATUS": status_cell(str(volume["status"])),
        "ATTACHED": ", ".join(_holders(volume)) or "-",
        "COST": "-" if provisioned and provisioned.get("price") is None else money(volume.get("cost")),
        "CREATED": age(volume.get("created_at"), now),
        "ERROR": volume.get("status_message") or "",
    }


def _holders(volume: Json) -> list[str]:
    """The fleets whose machines have the volume attached."""
    found = (each["instance"].get("fleet_name") or each["instance"]["name"] for each in volume["attachments"] or ())
    return list(dict.fromkeys(found))

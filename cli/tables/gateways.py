"""The tables of `dstack gateway`."""

from __future__ import annotations

from collections.abc import Sequence

from cli.screen.render import Cell, Table
from cli.tables.cells import Json, age, local_time, place, status_cell

PLAIN = ("NAME", "BACKEND", "HOSTNAME", "DOMAIN", "DEFAULT", "STATUS")
VERBOSE = (*PLAIN, "CREATED", "ERROR")


def gateways_table(gateways: Sequence[Json], now: float, verbose: bool = False) -> Table:
    """The gateways. With `verbose`, several replicas have a row each, below their gateway."""
    titles = VERBOSE if verbose else PLAIN
    table = Table(titles, below=("ERROR",))
    for gateway in sorted(gateways, key=lambda found: str(found.get("created_at") or ""), reverse=True):
        replicas = gateway.get("replicas") or []
        rows = [_row(gateway, now)]
        if verbose and len(replicas) > 1:
            rows += [_replica(each, now) for each in replicas]
        for row in rows:
            table.add(*(row.get(title, "") for title in titles))
    return table


def certificates_table(certificates: Sequence[Json]) -> Table:
    """The certificates of a gateway's hosts."""
    table = Table(("HOST", "CERTIFICATE", "UNTIL", "NEXT ATTEMPT", "ERROR"), below=("NEXT ATTEMPT", "ERROR"))
    for each in certificates:
        until, retry = (local_time(each[at])[:-3] or "-" for at in ("until", "next_attempt_at"))  # to the minute
        table.add(Cell(each["host"], "bold"), status_cell(each["state"]), until, retry, each["message"] or "")
    return table


def _row(gateway: Json, now: float) -> Json:
    configuration, replicas = gateway["configuration"], gateway.get("replicas") or []
    hostname = gateway.get("hostname") or "-"
    more = f" and {len(replicas) - 1} more" if len(replicas) > 1 else ""
    return {
        "NAME": Cell(str(gateway["name"]), "bold"),
        "BACKEND": place(configuration.get("backend"), configuration.get("region")),
        "HOSTNAME": hostname + more,
        "DOMAIN": gateway.get("wildcard_domain") or "-",
        "DEFAULT": "✓" if gateway.get("default") else "",
        "STATUS": status_cell(str(gateway["status"])),
        "CREATED": age(gateway.get("created_at"), now),
        "ERROR": gateway.get("status_message") or "",
    }


def _replica(replica: Json, now: float) -> Json:
    return {
        "NAME": f"  replica={replica['replica_num']}",
        "BACKEND": place(replica.get("backend"), replica.get("region")),
        "HOSTNAME": replica.get("hostname") or "-",
        "STATUS": status_cell(str(replica["status"])),
        "CREATED": age(replica.get("created_at"), now),
        "ERROR": replica.get("status_message") or "",
    }

"""The tables of `dstack gateway`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import Row, age, local_time, place, status_cell

if TYPE_CHECKING:
    from chalicelib import contract

PLAIN = ("NAME", "BACKEND", "HOSTNAME", "DOMAIN", "DEFAULT", "STATUS")
VERBOSE = (*PLAIN, "CREATED", "ERROR")


def gateways_table(gateways: Sequence[contract.Gateway], now: float, verbose: bool = False) -> Table:
    """The gateways. With `verbose`, several replicas have a row each, below their gateway."""
    titles = VERBOSE if verbose else PLAIN
    table = Table(titles, below=("ERROR",))
    for gateway in sorted(gateways, key=lambda found: found["created_at"], reverse=True):
        replicas = gateway["replicas"]
        rows = [_row(gateway, now)]
        if verbose and len(replicas) > 1:
            rows += [_replica(each, now) for each in replicas]
        for row in rows:
            table.add(*(row.get(title, "") for title in titles))
    return table


def certificates_table(certificates: Sequence[contract.HostCertificate]) -> Table:
    """The certificates of a gateway's hosts."""
    table = Table(("HOST", "CERTIFICATE", "UNTIL", "NEXT ATTEMPT", "ERROR"), below=("NEXT ATTEMPT", "ERROR"))
    for each in certificates:
        until, retry = (local_time(each[at])[:-3] or "-" for at in ("until", "next_attempt_at"))  # to the minute
        table.add(Cell(each["host"], "bold"), status_cell(each["state"]), until, retry, each["message"] or "")
    return table


def _row(gateway: contract.Gateway, now: float) -> Row:
    configuration, replicas = gateway["configuration"], gateway["replicas"]
    hostname = gateway["hostname"] or "-"
    more = f" and {len(replicas) - 1} more" if len(replicas) > 1 else ""
    return {
        "NAME": Cell(gateway["name"], "bold"),
        "BACKEND": place(configuration.get("backend"), configuration.get("region")),
        "HOSTNAME": hostname + more,
        "DOMAIN": gateway["wildcard_domain"] or "-",
        "DEFAULT": "✓" if gateway["default"] else "",
        "STATUS": status_cell(gateway["status"]),
        "CREATED": age(gateway["created_at"], now),
        "ERROR": gateway["status_message"] or "",
    }


def _replica(replica: contract.GatewayReplica, now: float) -> Row:
    return {
        "NAME": f"  replica={replica['replica_num']}",
        "BACKEND": place(replica["backend"], replica["region"]),
        "HOSTNAME": replica["hostname"] or "-",
        "STATUS": status_cell(replica["status"]),
        "CREATED": age(replica["created_at"], now),
        "ERROR": replica["status_message"] or "",
    }

"""The table of `dstack fleet`: the requirements of each fleet, and below them its instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import Row, age, gpu_requirement, gpus, machine, moment, money, place, requirements, status_cell

if TYPE_CHECKING:
    from chalicelib import contract

PLAIN = ("NAME", "NODES", "GPU", "SPOT", "BACKEND", "PRICE", "STATUS", "CREATED")
VERBOSE = ("NAME", "NODES", "RESOURCES", "SPOT", "BACKEND", "PRICE", "STATUS", "CREATED", "ERROR")


def fleets_table(fleets: Sequence[contract.Fleet], now: float, project: str, verbose: bool = False) -> Table:
    titles = VERBOSE if verbose else PLAIN
    table = Table(titles, below=("GPU", "RESOURCES", "ERROR"))
    for fleet in sorted(fleets, key=lambda found: found["created_at"], reverse=True):
        for row in [_fleet_row(fleet, now, project), *(_instance_row(one, now, verbose) for one in _instances(fleet))]:
            table.add(*(row.get(title, "") for title in titles))
    return table


def joins_table(joins: Sequence[contract.Join], now: float) -> Table:
    table = Table(("ID", "STATUS", "MACHINE", "BY", "CREATED", "EXPIRES"))
    for join in joins:
        left = (moment(join["expires_at"]) or now) - now
        expires = f"in {-(-left // 60):.0f} min" if left > 0 else "-"
        table.add(
            join["id"],
            join["status"],
            join["instance_name"] or "-",
            join["created_by"],
            age(join["created_at"], now),
            expires if join["status"] == "unused" else "-",
        )
    return table


def _instances(fleet: contract.Fleet) -> list[contract.Instance]:
    return sorted(fleet["instances"], key=lambda found: found["instance_num"])


def _fleet_row(fleet: contract.Fleet, now: float, project: str) -> Row:
    configuration = fleet["spec"]["configuration"]
    own = fleet["project_name"] == project
    hosts = configuration.get("ssh_config")
    resources = configuration.get("resources")
    cluster = " (cluster)" if configuration.get("placement") == "cluster" else ""
    policy = {"spot": "yes", "auto": "any"}.get(str(configuration.get("spot_policy")), "no")
    ceiling = configuration.get("max_price")
    return {
        "NAME": Cell(fleet["name"] if own else f"{fleet['project_name']}/{fleet['name']}", "bold"),
        "NODES": (str(len(hosts.get("hosts") or ())) if hosts else _nodes(configuration.get("nodes"))) + cluster,
        "GPU": "-" if hosts else gpu_requirement((resources or {}).get("gpu")) or "-",
        "RESOURCES": "-" if hosts else requirements(resources),
        "SPOT": "-" if hosts else policy,
        "BACKEND": "ssh" if hosts else ", ".join(configuration.get("backends") or ()) or "*",
        "PRICE": "-" if hosts or ceiling is None else f"$0..{money(ceiling)[1:]}",
        "STATUS": status_cell(fleet["status"]),
        "CREATED": age(fleet["created_at"], now),
        "ERROR": fleet["status_message"] or "",
    }


def _nodes(nodes: object) -> str:
    if not isinstance(nodes, dict):
        return "-" if nodes is None else str(nodes)
    low, high = nodes.get("min") or 0, nodes.get("max")
    return str(low) if low == high else f"{low}..{'' if high is None else high}"


def _instance_row(instance: contract.Instance, now: float, verbose: bool) -> Row:
    resources = instance["instance_type"]["resources"]
    where = instance["availability_zone"] if verbose else None
    return {
        "NAME": f"  instance={instance.get('instance_num')}",
        "GPU": gpus(resources),
        "RESOURCES": machine(resources),
        "SPOT": "yes" if resources["spot"] else "no",
        "BACKEND": place(instance["backend"], where or instance["region"]),
        "PRICE": money(instance["price"]),
        "STATUS": _instance_status(instance),
        "CREATED": age(instance["created"], now),
        "ERROR": instance["termination_reason_message"]
        or instance["termination_reason"]
        or instance["health_message"]
        or "",
    }


def _instance_status(instance: contract.Instance) -> Cell:
    status, total, busy = instance["status"], instance["total_blocks"], instance["busy_blocks"]
    text = f"{busy}/{total} busy" if total > 1 and status in ("idle", "busy") and busy else status
    if instance["unreachable"]:
        return Cell(f"{text} (unreachable)", "bad")
    health = instance["health_status"]
    if health in ("warning", "failure"):
        return Cell(f"{text} ({health})", "warn" if health == "warning" else "bad")
    return Cell(text, status_cell(status).style)

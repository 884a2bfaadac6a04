"""The table of `dstack fleet`: the requirements of each fleet, and below them its instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli.screen.render import Cell, Table
from cli.tables.cells import Json, age, gpu_requirement, gpus, machine, moment, money, place, requirements, status_cell

PLAIN = ("NAME", "NODES", "GPU", "SPOT", "BACKEND", "PRICE", "STATUS", "CREATED")
VERBOSE = ("NAME", "NODES", "RESOURCES", "SPOT", "BACKEND", "PRICE", "STATUS", "CREATED", "ERROR")

_WHY = ("termination_reason_message", "termination_reason", "health_message")


def fleets_table(fleets: Sequence[Json], now: float, project: str, verbose: bool = False) -> Table:
    titles = VERBOSE if verbose else PLAIN
    table = Table(titles, below=("GPU", "RESOURCES", "ERROR"))
    for fleet in sorted(fleets, key=lambda found: str(found.get("created_at") or ""), reverse=True):
        for row in [_fleet_row(fleet, now, project), *(_instance_row(one, now, verbose) for one in _instances(fleet))]:
            table.add(*(row.get(title, "") for title in titles))
    return table


def joins_table(joins: Sequence[Json], now: float) -> Table:
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


def _instances(fleet: Json) -> list[Json]:
    return sorted(fleet.get("instances") or [], key=lambda found: found.get("instance_num") or 0)


def _fleet_row(fleet: Json, now: float, project: str) -> dict[str, Any]:
    configuration = (fleet.get("spec") or {}).get("configuration") or {}
    own = fleet.get("project_name") in (None, project)
    hosts = configuration.get("ssh_config")
    resources = configuration.get("resources")
    cluster = " (cluster)" if configuration.get("placement") == "cluster" else ""
    policy = {"spot": "yes", "auto": "any"}.get(str(configuration.get("spot_policy")), "no")
    ceiling = configuration.get("max_price")
    return {
        "NAME": Cell(str(fleet.get("name")) if own else f"{fleet.get('project_name')}/{fleet.get('name')}", "bold"),
        "NODES": (str(len(hosts.get("hosts") or ())) if hosts else _nodes(configuration.get("nodes"))) + cluster,
        "GPU": "-" if hosts else gpu_requirement((resources or {}).get("gpu")) or "-",
        "RESOURCES": "-" if hosts else requirements(resources),
        "SPOT": "-" if hosts else policy,
        "BACKEND": "ssh" if hosts else ", ".join(configuration.get("backends") or ()) or "*",
        "PRICE": "-" if hosts or ceiling is None else f"$0..{money(ceiling)[1:]}",
        "STATUS": status_cell(str(fleet.get("status") or "")),
        "CREATED": age(fleet.get("created_at"), now),
        "ERROR": str(fleet.get("status_message") or ""),
    }


def _nodes(nodes: Any) -> str:
    if not isinstance(nodes, dict):
        return "-" if nodes is None else str(nodes)
    low, high = nodes.get("min") or 0, nodes.get("max")
    return str(low) if low == high else f"{low}..{'' if high is None else high}"


def _instance_row(instance: Json, now: float, verbose: bool) -> dict[str, Any]:
    kind = instance.get("instance_type") or {}
    resources = kind.get("resources") or {}
    where = instance.get("availability_zone") if verbose else None
    return {
        "NAME": f"  instance={instance.get('instance_num')}",
        "GPU": gpus(resources) if kind else "-",
        "RESOURCES": machine(resources),
        "SPOT": ("yes" if resources.get("spot") else "no") if kind else "",
        "BACKEND": place(instance.get("backend"), where or instance.get("region")),
        "PRICE": money(instance.get("price")),
        "STATUS": _instance_status(instance),
        "CREATED": age(instance.get("created"), now),
        "ERROR": str(next((instance[name] for name in _WHY if instance.get(name)), "")),
    }


def _instance_status(instance: Json) -> Cell:
    status = str(instance.get("status") or "")
    total, busy = instance.get("total_blocks") or 1, instance.get("busy_blocks") or 0
    text = f"{busy}/{total} busy" if total > 1 and status in ("idle", "busy") and busy else status
    if instance.get("unreachable"):
        return Cell(f"{text} (unreachable)", "bad")
    health = instance.get("health_status")
    if health in ("warning", "failure"):
        return Cell(f"{text} ({health})", "warn" if health == "warning" else "bad")
    return Cell(text, status_cell(status).style)

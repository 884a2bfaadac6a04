"""What is shown of services: their replicas and why there are as many, their traffic, and the addresses for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import moment

if TYPE_CHECKING:
    from chalicelib import contract


STEP = 10  # seconds that each count of requests is about
MINUTE = 60


def groups_table(service: contract.V1Service) -> Table:
    """The groups of a service's replicas."""
    table = Table(("GROUP", "READY", "DESIRED", "BOUNDS", "WHY"), below=("WHY",))
    for group in service["groups"]:
        own = [replica for replica in service["replicas"] if replica["group"] == group["name"]]
        ready = [each for each in own if each["status"] == "running" and each["ready_at"] and not each["draining_at"]]
        fewest, most = str(group["fewest"]), str(group["most"])
        bounds = fewest if fewest == most else f"{fewest}..{most}"
        table.add(Cell(group["name"], "bold"), str(len(ready)), str(group["desired"]), bounds, group["why"] or "")
    return table


def traffic_line(service: contract.V1Service, now: float) -> str:
    """What its doors counted in the last minute."""
    traffic = service["traffic"]
    if traffic["reported_at"] is None:
        return "No request has come yet."
    recent = [each for each in traffic["items"] if (moment(each["at"]) or 0) >= now - MINUTE - STEP]
    rate = sum(each["requests"] for each in recent) / MINUTE
    busy = sum(each["busy"] for each in recent) * STEP / MINUTE
    return f"Last minute: {rate:.3g} requests a second, {busy:.3g} under way, {traffic['held']} held now."


def times_table(traffic: contract.V1Traffic) -> Table:
    """How long answers took in the last minute."""
    table = Table(("ANSWER", "P50", "P95", "P99"))
    for name, found in (("first byte", traffic["first_byte"]), ("whole", traffic["whole"])):
        shares = (found["p50"], found["p95"], found["p99"]) if found else (None, None, None)
        table.add(name, *map(_seconds, shares))
    return table


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.3g} s"


def addresses(run: contract.Run, server: str) -> list[str]:
    """The lines with the addresses of a service and its model; empty for other runs. Paths are on the server."""
    names, service = {"Service": run["run_spec"]["run_name"]}, run["service"]
    if service and service["model"]:
        names["Model"] = service["model"]["name"]
    return [f"{what} {names[what]} is at {where}" for what, where in places(run, server)]


def places(run: contract.Run, server: str) -> list[tuple[str, str]]:
    """`Service` and `Model`, each with its address."""
    service = run["service"]
    if not service:
        return []
    found = [("Service", _absolute(service["url"], server))]
    if model := service["model"]:
        found.append(("Model", _absolute(model["base_url"], server)))
    return found


def _absolute(url: str, server: str) -> str:
    return f"{server}{url}" if url.startswith("/") else url


def scaling_note(run: contract.Run, running: Mapping[str, int]) -> str:
    """How many replicas a service should have for its traffic, and why, if that differs from the current number or
    there is a reason to show. `running`: the running replicas of each group."""
    scales = run["service"]["scales"] if run["service"] else ()
    parts = []
    for scale in scales:
        count, why = scale["desired"], scale["why"]
        found = [f"group {scale['group']}"] if len(scales) > 1 else []
        if count != running.get(scale["group"], 0):
            found.append(f"should have {count} replica{'' if count == 1 else 's'}")
        elif scale["wanted"] is None and not scale["stale"]:
            continue
        if why:
            parts.append(": ".join(filter(None, (" ".join(found), why))))
    return "; ".join(parts)


def replicas_of(configuration: contract.Configuration) -> str:
    """`replicas=2`, `replicas=0..4` or, with groups, `groups=2, replicas=3`; empty for one replica."""
    groups = configuration.get("groups")
    counts = [group["replicas"] for group in groups] if groups else [configuration.get("replicas") or 1]
    least, most = (sum(_bound(count, side) for count in counts) for side in ("min", "max"))
    replicas = str(least) if least == most else f"{least}..{most}"
    if groups:
        return f"groups={len(groups)}, replicas={replicas}"
    return "" if replicas == "1" else f"replicas={replicas}"


def _bound(count: object, side: str) -> int:
    """A bound of a number of replicas, as a client or a user writes it."""
    if isinstance(count, Mapping):
        return int(count.get(side) or 0)
    low, dots, high = str(count).partition("..")
    return int((low if side == "min" or not dots else high) or 0)


def replaced(plan: contract.RunPlan) -> str:
    """A line about what an update of a service does to its replicas; empty for other runs."""
    if plan["run_spec"]["configuration"]["type"] != "service":
        return ""
    groups, names = plan["replaces"], [job["job_spec"]["replica_group"] for job in plan["job_plans"]]
    of_groups = f" of group {', '.join(groups)}" if len(names) > 1 else ""
    replacement = f"Its replicas{of_groups} are replaced, one after the other." if groups else "No replica is replaced."
    current = plan["current_resource"]
    before = _names(current["run_spec"]["configuration"]) if current else []
    removed = [name for name in before if name not in names]
    return (
        f"{replacement} Those of group {', '.join(removed)} go once the others can take their requests."
        if removed
        else replacement
    )


def _names(configuration: contract.Configuration) -> list[str]:
    """The names of a service's groups; a single group has a name, too."""
    older = configuration.get("replicas")  # a list in this field is another way to write groups
    groups = configuration.get("groups") or (older if isinstance(older, list) else [{}])
    return [group.get("name") or str(at) for at, group in enumerate(groups)]

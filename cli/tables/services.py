"""Texts about services: the wanted number of replicas and its reason, and the addresses for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chalicelib import contract


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

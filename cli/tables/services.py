"""Texts about services: the wanted number of replicas and its reason, and the addresses for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.tables.cells import Json


def addresses(run: Json, server: str) -> list[str]:
    """The lines with the addresses of a service and its model; empty for other runs. Paths are on the server."""
    names = {"Service": run["run_spec"]["run_name"]}
    if (run.get("service") or {}).get("model"):
        names["Model"] = run["service"]["model"]["name"]
    return [f"{what} {names[what]} is at {where}" for what, where in places(run, server)]


def places(run: Json, server: str) -> list[tuple[str, str]]:
    """`Service` and `Model`, each with its address."""
    service = run.get("service")
    if not service:
        return []
    found = [("Service", _absolute(service["url"], server))]
    if model := service.get("model"):
        found.append(("Model", _absolute(model["base_url"], server)))
    return found


def _absolute(url: str, server: str) -> str:
    return f"{server}{url}" if url.startswith("/") else url


def scaling_note(run: Json, running: Mapping[str, int]) -> str:
    """How many replicas a service should have for its traffic, and why, if that differs from the current number or
    there is a reason to show. `running`: the running replicas of each group."""
    scales = (run.get("service") or {}).get("scales") or ()
    parts = []
    for scale in scales:
        count, why = scale["desired"], scale.get("why")
        found = [f"group {scale['group']}"] if len(scales) > 1 else []
        if count != running.get(scale["group"], 0):
            found.append(f"should have {count} replica{'' if count == 1 else 's'}")
        elif scale.get("wanted") is None and not scale.get("stale"):
            continue
        if why:
            parts.append(": ".join(filter(None, (" ".join(found), why))))
    return "; ".join(parts)


def replicas_of(configuration: Json) -> str:
    """`replicas=2`, `replicas=0..4` or, with groups, `groups=2, replicas=3`; empty for one replica."""
    groups = configuration.get("groups")
    counts = [group["replicas"] for group in groups] if groups else [configuration.get("replicas") or 1]
    least, most = (sum(_bound(count, side) for count in counts) for side in ("min", "max"))
    replicas = str(least) if least == most else f"{least}..{most}"
    if groups:
        return f"groups={len(groups)}, replicas={replicas}"
    return "" if replicas == "1" else f"replicas={replicas}"


def _bound(count: Any, side: str) -> int:
    """A bound of a number of replicas, as a client or a user writes it."""
    if isinstance(count, Mapping):
        return int(count.get(side) or 0)
    low, dots, high = str(count).partition("..")
    return int((low if side == "min" or not dots else high) or 0)


def replaced(plan: Json) -> str:
    """A line about what an update of a service does to its replicas; empty for other runs."""
    if plan["run_spec"]["configuration"]["type"] != "service":
        return ""
    groups, names = plan.get("replaces") or (), [job["job_spec"]["replica_group"] for job in plan["job_plans"]]
    of_groups = f" of group {', '.join(groups)}" if len(names) > 1 else ""
    replacement = f"Its replicas{of_groups} are replaced, one after the other." if groups else "No replica is replaced."
    removed = [name for name in _names(plan["current_resource"]["run_spec"]["configuration"]) if name not in names]
    return (
        f"{replacement} Those of group {', '.join(removed)} go once the others can take their requests."
        if removed
        else replacement
    )


def _names(configuration: Json) -> list[str]:
    """The names of a service's groups; a single group has a name, too."""
    older = configuration.get("replicas")  # a list in this field is another way to write groups
    groups = configuration.get("groups") or (older if isinstance(older, list) else [{}])
    return [group.get("name") or str(at) for at, group in enumerate(groups)]

"""The output of `apply` before its question: the plan, its offers and cost, and the changes of an update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Cell, Table
from cli.tables.cells import duration, machine, money, place, requirements
from cli.tables.services import replicas_of

if TYPE_CHECKING:
    from chalicelib import contract

Change = tuple[str, object, object]  # a field's path, its old value and its new one
AVAILABILITY = {  # `available` and `unknown` aren't shown
    "not_available": "not available",
    "no_quota": "no quota",
    "no_balance": "no balance",
    "idle": "idle",
    "busy": "busy",
}
USABLE = ("available", "unknown", "idle", None)
QUIET = (
    "configuration_path",
    "ssh_key_pub",
    "run_name",
    "autocreated",
)  # fields of a run spec that aren't the user's changes


def run_facts(plan: contract.RunPlan, verbose: bool = False) -> list[tuple[str, str]]:
    spec = plan["effective_run_spec"]
    configuration = spec["configuration"]
    job = plan["job_plans"][0]["job_spec"]
    required = job["requirements"]
    wanted = {**(spec.get("profile") or {}), **{k: v for k, v in configuration.items() if v is not None}}
    groups = configuration.get("groups") or ()
    nodes = sum(group.get("nodes") or 1 for group in groups) if groups else configuration.get("nodes") or 1
    many = replicas_of(configuration) if configuration["type"] == "service" else f"nodes={nodes}" if nodes > 1 else ""
    pairs = [
        ("Project", plan["project_name"]),
        ("User", plan["user"]),
        ("Type", f"{configuration['type']}{f' ({many})' if many else ''}"),
        ("Resources", _of_groups(plan) or requirements(required["resources"])),
        ("Spot policy", spot_policy(required["spot"])),
        ("Max price", money(required["max_price"]) or "off"),
        ("Retry policy", _retry(job["retry"])),
        ("Idle duration", _idle(wanted.get("idle_duration"))),
        ("Max duration", duration(job["max_duration"] or "off")),
    ]
    creation = wanted.get("creation_policy") or "reuse-or-create"
    if verbose or creation != "reuse-or-create":
        pairs.insert(7, ("Creation policy", creation))
    if configuration["type"] == "dev-environment":
        pairs.append(("Inactivity duration", duration(configuration.get("inactivity_duration") or "off")))
    if configuration.get("scaling") and not many:
        pairs.append(("Scaling", "off: it takes a range, such as `replicas: 1..4`"))
    if plan["quota"]:
        pairs.append(("Quota", "\n".join(plan["quota"])))
    if verbose or required["reservation"]:
        pairs.append(("Reservation", required["reservation"] or "-"))
    return pairs


def spot_policy(spot: bool | None) -> str:
    return "auto" if spot is None else "spot" if spot else "on-demand"


def _of_groups(plan: contract.RunPlan) -> str:
    """The requirements of each node or replica of a group, one line per group; empty if there is only one."""
    lines: dict[str, str] = {}
    for job in plan["job_plans"]:
        spec = job["job_spec"]
        lines[group_of(spec)] = requirements(spec["requirements"]["resources"])
    return "\n".join(f"{name}: {needs}" for name, needs in lines.items()) if len(lines) > 1 else ""


def group_of(spec: contract.JobSpec) -> str:
    """The name of a job's group of nodes or replicas."""
    return str(spec.get("node_group_name" if spec.get("service_port") is None else "replica_group", "0"))


def fleet_facts(plan: contract.FleetPlan) -> list[tuple[str, str]]:
    spec = plan["effective_spec"]
    configuration = spec["configuration"]
    hosts = configuration.get("ssh_config")
    nodes = configuration.get("nodes") or {}
    low, high = nodes.get("min"), nodes.get("max")
    count = (
        len(hosts.get("hosts") or ()) if hosts else (low if low == high else f"{low}..{'' if high is None else high}")
    )
    pairs = [
        ("Project", plan["project_name"]),
        ("User", plan["user"]),
        ("Configuration", spec.get("configuration_path") or ""),
        ("Type", "fleet"),
        ("Fleet type", "ssh" if hosts else "cloud"),
        ("Nodes", f"{count}{_target(nodes)}"),
        ("Placement", configuration.get("placement") or "any"),
        ("Backends", ", ".join(configuration.get("backends") or ())),
        ("Regions", ", ".join(configuration.get("regions") or ())),
        ("Resources", "" if hosts else requirements(configuration.get("resources")).strip("-")),
        ("Spot policy", "" if hosts else configuration.get("spot_policy") or "on-demand"),
        ("Reservation", configuration.get("reservation") or ""),
    ]
    return [(name, value) for name, value in pairs if value]


def _target(nodes: contract.Configuration) -> str:
    """How many nodes are created at once, if that isn't the minimum."""
    target = nodes.get("target")
    return "" if target is None or target == nodes.get("min") else f" ({target} at once)"


def offers_table(offers: Sequence[contract.Offer], *, dim_all_but_first: bool = True) -> Table:
    """Offers in the order in which they would be tried."""
    table = Table(("#", "BACKEND", "RESOURCES", "INSTANCE TYPE", "PRICE", ""), right=frozenset({0}))
    for number, offer in enumerate(offers, 1):
        instance = offer["instance"]
        resources = instance["resources"] or {}
        blocks = offer["total_blocks"] or 1
        share = f" ({offer.get('blocks')}/{blocks})" if blocks > 1 else ""
        cells = (
            str(number),
            place(offer["backend"], offer["region"]),
            machine(resources) + (" (spot)" if resources.get("spot") else ""),
            f"{instance.get('name', '')}{share}",
            money(offer["price"]),
            AVAILABILITY.get(str(offer["availability"]), ""),
        )
        style = "dim" if dim_all_but_first and number > 1 else ""
        table.add(*(Cell(text, style) for text in cells))
    return table


def offers_summary(shown: int, total: int, highest: float | None) -> str:
    """A line about omitted offers; empty if there are none."""
    if total <= shown:
        return ""
    return f"Shown {shown} of {total} offers{f', up to {money(highest)} an hour' if highest else ''}."


def cost_line(plan: contract.RunPlan) -> str:
    """The cost of the run on the first offers, per hour and at most; empty if it is free."""
    hourly = 0.0
    ceilings = []
    for job in plan["job_plans"]:
        usable = [offer for offer in job["offers"] if offer["availability"] in USABLE]
        if not usable:
            return ""
        hourly += usable[0]["price"] * job["count"]
        ceilings.append(job["job_spec"].get("max_duration"))
    if not hourly:
        return ""  # the user's own machines
    text = f"Cost: {money(hourly)} an hour on the first offer"
    if None not in ceilings and (longest := max(filter(None, ceilings), default=None)):
        text += f", at most {money(hourly * longest / 3600)} in {duration(longest)}"
    return f"{text}."


def changes(old: object, new: object, path: str = "") -> list[Change]:
    """The fields that differ: path, old and new value. Absent, null and empty are the same."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [*old, *(key for key in new if key not in old)]
        found = []
        for key in keys:
            if not path and key in QUIET:
                continue
            found += changes(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        return found
    return [] if old == new or (_empty(old) and _empty(new)) else [(path, old, new)]


def changes_table(found: list[Change]) -> Table:
    table = Table(("FIELD", "NOW", "NEW"))
    for path, old, new in found:
        table.add(path.removeprefix("configuration."), _short(old), _short(new))
    return table


def _empty(value: object) -> bool:
    return value is None or value in ([], {})


def _short(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping) and set(value) == {"min", "max"}:
        if value["min"] == value["max"] is not None:
            return str(value["min"])
        return f"{'' if value['min'] is None else value['min']}..{'' if value['max'] is None else value['max']}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_short(item)}" for key, item in value.items() if not _empty(item)) or "-"
    if isinstance(value, list):
        return ", ".join(_short(item) for item in value) or "-"
    return str(value)


def _idle(seconds: float | None) -> str:
    return "set by the fleet, else 5m" if seconds is None else duration(seconds)


def _retry(retry: contract.RetryPolicy | None) -> str:
    if not retry:
        return "off"
    events = ", ".join(retry.get("on_events") or ())
    return f"{duration(retry.get('duration'))}{f' [{events}]' if events else ''}"

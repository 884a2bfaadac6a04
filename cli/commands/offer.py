"""`dstack offer`: available machines, as the plan of a task that does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.applying.definition import synthetic_task
from cli.applying.flags import PLANNED, max_offers, overrides, taking
from cli.connection import calls, console
from cli.connection.session import Session, open_session
from cli.screen.parameters import Flags, JsonOption, ProjectOption, Value, WebOption, command, new_group
from cli.screen.render import as_json, facts
from cli.tables.cells import money, requirements
from cli.tables.offers import ages_line, asked_lines, gpus_table
from cli.tables.plans import offers_summary, offers_table, spot_policy

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

app = new_group("List available machines, cheapest first.")

Group = Literal["gpu", "backend", "region", "count"]
GROUPS: tuple[Group, ...] = ("gpu", "backend", "region", "count")


@command(
    app,
    "offer",
    "dstack offer --gpu 24GB.. --max-offers 10",
    "dstack offer --gpu H100:8 --spot -b aws --json",
    "dstack offer --group-by gpu,backend",
)
@taking(max_offers(50), PLANNED)
def offer(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
    format_: Annotated[
        Literal["plain", "json"] | None, typer.Option("--format", metavar="plain|json", help="The output format.")
    ] = None,
    group_by: Annotated[
        list[str] | None,
        typer.Option("--group-by", metavar="KEYS", help="gpu, optionally with backend, region, count."),
    ] = None,
    web: WebOption = False,
    **flags: Value,
) -> None:
    """List available machines, cheapest first.

    Fleets don't limit the list unless --fleet names some. Without a spot flag it shows on-demand machines.
    Flags such as --idle-duration and --retry mean the same as for a run.
    """
    groups = _groups(group_by)
    session = open_session(ctx, project)
    if web:
        console.show(session.terminal, session.client, "offers")
        return
    profile, no_profile = flags["profile"], flags["no_profile"]
    spec, places = synthetic_task(session.terminal, overrides(ctx), profile=profile, no_profile=no_profile)
    json_wanted = json_wanted or format_ == "json"
    with places.locating():
        if groups:
            _show_groups(session, spec, groups, flags, json_wanted)
        else:
            _show_offers(session, spec, flags, json_wanted)


def _show_offers(session: Session, spec: contract.Configuration, flags: Flags, json_wanted: bool) -> None:
    body: bodies.GetRunPlanBody = {
        "run_spec": spec,
        "max_offers": flags["max_offers"],
        "full_offers": flags["full_offers"],
        "unallocated_resources": flags["unallocated"],
        "for_offers_only": True,
    }
    plan = calls.runs_get_plan(session.client, body)
    job = plan["job_plans"][0]
    wanted = job["job_spec"]["requirements"]
    if json_wanted:
        document: contract.OfferList = {
            "project": plan["project_name"],
            "user": plan["user"],
            "requirements": {
                "resources": wanted["resources"],
                "max_price": wanted["max_price"],
                "spot": wanted["spot"],
                "reservation": wanted["reservation"],
            },
            "offers": job["offers"],
            "total_offers": job["total_offers"],
            "offers_as_of": plan["offers_as_of"],
            "offers_asked": plan["offers_asked"],
        }
        session.terminal.print(as_json(document))
        return
    _show_facts(session, wanted)
    session.show(offers_table(job["offers"], dim_all_but_first=False))
    summary = offers_summary(len(job["offers"]), job["total_offers"], job["max_price"])
    if summary:
        session.terminal.print(summary)
    _show_age(session, plan)
    if not job["offers"]:
        session.terminal.warn(_nothing_fits(flags))


def _nothing_fits(flags: Flags) -> str:
    """A suggestion to relax the flags that narrowed the search."""
    narrowing = ("cpu", "gpu", "memory", "disk", "max_price", "backend", "region", "instance_type", "fleet", "reuse")
    given = [f"--{name.replace('_', '-')}" for name in narrowing if flags[name]]
    parts = [f"Leave out or loosen {', '.join(given)}."] if given else []
    if not any(flags[name] for name in ("spot", "on_demand", "spot_auto", "spot_policy")):
        parts.append("--spot-auto shows spot machines too.")
    return " ".join(["No offers match.", *parts])


def _show_groups(
    session: Session, spec: contract.Configuration, groups: list[Group], flags: Flags, json_wanted: bool
) -> None:
    body: bodies.ListGpusBody = {
        "run_spec": spec,
        "group_by": [key for key in groups if key != "gpu"],
        "full_offers": flags["full_offers"],
        "unallocated_resources": flags["unallocated"],
    }
    answer = calls.gpus_list(session.client, body)
    found = answer["gpus"]
    merged = {**spec["profile"], **{key: value for key, value in spec["configuration"].items() if value is not None}}
    wanted: contract.OfferRequirements = {
        "resources": merged["resources"],
        "max_price": merged.get("max_price"),
        "spot": {"spot": True, "auto": None}.get(str(merged.get("spot_policy")), False),
        "reservation": merged.get("reservation"),
    }
    if json_wanted:
        document: contract.OfferGroups = {
            "project": session.project,
            "requirements": wanted,
            "group_by": [*groups],
            "gpus": [_with_every_key(group) for group in found],
            "offers_as_of": answer["offers_as_of"],
            "offers_asked": answer["offers_asked"],
        }
        session.terminal.print(as_json(document))
        return
    _show_facts(session, wanted)
    session.show(gpus_table(found, groups))
    _show_age(session, answer)


def _with_every_key(group: contract.GpuGroup) -> contract.OfferGroup:
    """As scripts expect it: null for the keys of place that it wasn't grouped by."""
    return {
        "backends": group.get("backends"),
        "backend": group.get("backend"),
        "regions": group.get("regions"),
        "region": group.get("region"),
        "name": group["name"],
        "memory_mib": group["memory_mib"],
        "vendor": group["vendor"],
        "availability": group["availability"],
        "spot": group["spot"],
        "count": group["count"],
        "price": group["price"],
        "offer_price": group["offer_price"],
    }


def _show_age(session: Session, answer: contract.RunPlan | contract.GpuList) -> None:
    """Shows in dim lines how old the offers are, since prices may have changed, and what was asked for others."""
    line = ages_line(answer["offers_as_of"], session.terminal.now())
    session.terminal.dim(*([line] if line else []), *asked_lines(answer["offers_asked"]))


def _show_facts(session: Session, wanted: contract.Requirements | contract.OfferRequirements) -> None:
    terminal = session.terminal
    pairs = [
        ("Project", session.project),
        ("Resources", requirements(wanted["resources"])),
        ("Spot policy", spot_policy(wanted["spot"])),
        ("Max price", money(wanted["max_price"]) or "off"),
    ]
    terminal.print(facts(pairs, terminal.width, terminal.colour) + "\n")


def _groups(given: list[str] | None) -> list[Group]:
    keys = [key.strip() for text in given or () for key in text.split(",") if key.strip()]
    unknown = [key for key in keys if key not in GROUPS]
    if unknown:
        raise typer.BadParameter(f"--group-by accepts {', '.join(GROUPS)}, not {', '.join(unknown)}.")
    if keys and "gpu" not in keys:
        raise typer.BadParameter("--group-by must include gpu, for example --group-by gpu,backend.")
    if "region" in keys and "backend" not in keys:
        raise typer.BadParameter("--group-by region also needs backend: --group-by gpu,backend,region.")
    known = {name: name for name in GROUPS}
    return [known[key] for key in dict.fromkeys(keys) if key in known]

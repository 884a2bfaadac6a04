"""Applying and deleting fleets: plan, show, confirm, apply, and wait until their machines are ready or gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import Invalid, NotFound, Problem, Refused
from cli.applying.follow import Stages
from cli.applying.host_progress import HostProgress
from cli.applying.runs import ApplyOptions, LoadedConfiguration
from cli.connection import calls, console
from cli.connection.session import Session
from cli.screen.render import as_json, facts
from cli.screen.terminal import Terminal
from cli.ssh.keys import read_key
from cli.tables.fleets import fleets_table
from cli.tables.plans import Change, changes, changes_table, fleet_facts, offers_summary, offers_table

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

GONE_SECONDS = 1.0
READY_SECONDS = 0.5
POLLS_TO_ORDER = 10
READY = ("idle", "busy")
COMING = ("pending", "provisioning", "terminating")


def apply_fleet(session: Session, definition: LoadedConfiguration, options: ApplyOptions) -> int:
    """Creates or changes the fleet; returns the exit code."""
    terminal = session.terminal
    configuration = with_ssh_keys(definition.configuration, terminal.cwd, terminal.home)
    spec = {"configuration": configuration, "configuration_path": definition.path, "profile": definition.profile}
    plan = calls.fleets_get_plan(session.client, {"spec": spec})
    current = plan["current_resource"]
    if current is not None and plan["action"] != "update" and options.in_place:
        raise Refused(
            f"Fleet {current['name']} would have to be deleted and re-created for this.",
            hint="Give the machine a fleet of its own: --pool NAME.",
        )
    if not options.as_json:
        _show(session, plan)
    elif current is not None and not options.force and not _changes(plan, current) and not _lacks_hosts(current):
        terminal.print(as_json(current))
        return 0
    if not _agreed(session, plan, current, options):
        return 0
    unchanged = current is not None and not _changes(plan, current) and not _lacks_hosts(current)
    if current is not None and (plan["action"] != "update" or unchanged):
        delete_fleet(session, current["name"])
        current = None
    body: bodies.ApplyFleetBody = {
        "plan": {"spec": plan["spec"], "current_resource": current},
        "force": options.force,
    }
    fleet = calls.fleets_apply(session.client, body)
    session.cache_names("fleet", [fleet["name"]])
    if options.as_json:
        terminal.print(as_json(fleet))
        return 0
    console.mention(terminal, session.client, "fleets", fleet["name"], opened=options.web)
    if options.detach:
        terminal.print(f"Fleet {fleet['name']} is applied; its machines are created in the background.")
        return 0
    return _wait(session, fleet, asks=not options.yes)


def delete_fleet(session: Session, name: str) -> None:
    """Deletes the fleet and returns when it is gone."""
    calls.fleets_delete(session.client, {"names": [name]})
    session.terminal.warn(f"Deleting fleet {name} …")
    while True:
        try:
            calls.fleets_get(session.client, {"name": name, "id": None})
        except NotFound:
            return
        session.terminal.sleep(GONE_SECONDS)


def with_ssh_keys(configuration: contract.Configuration, folder: Path, home: Path) -> contract.Configuration:
    """The configuration with the keys from its `identity_file`s, which the server needs to reach the hosts. Relative
    paths start at `folder`, in which the command runs, as with `ssh -i`."""
    if not configuration.get("ssh_config"):
        return configuration
    problems: list[Problem] = []

    def filled(written: contract.Configuration, at: str) -> contract.Configuration:
        found = dict(written)
        if found.get("proxy_jump"):
            found["proxy_jump"] = filled(found["proxy_jump"], f"{at}.proxy_jump")
        if name := found.get("identity_file"):
            try:
                found["ssh_key"] = read_key(name, folder, home)
            except Refused as error:
                message = error.message.removeprefix("identity_file: ").rstrip(".")
                problems.append(Problem(message, f"{at}.identity_file", hint=error.hint, code="invalid-path"))
        return found

    hosts = filled(configuration["ssh_config"], "ssh_config")
    hosts["hosts"] = [
        filled(host, f"ssh_config.hosts.{place}") if isinstance(host, dict) else host
        for place, host in enumerate(hosts.get("hosts") or ())
    ]
    if problems:
        raise Invalid(problems)
    return {**configuration, "ssh_config": hosts}


def _show(session: Session, plan: contract.FleetPlan) -> None:
    terminal = session.terminal
    terminal.print(facts(fleet_facts(plan), terminal.width, terminal.colour))
    terminal.print()
    offers = plan["offers"]
    if offers:
        session.show(offers_table(offers[:3], dim_all_but_first=False))
        summary = offers_summary(len(offers[:3]), plan["total_offers"], plan["max_offer_price"])
        if summary:
            terminal.print(summary)
    for remark in plan["remarks"]:
        terminal.print(remark)
    if offers or plan["remarks"]:
        terminal.print()


def _agreed(session: Session, plan: contract.FleetPlan, current: contract.Fleet | None, options: ApplyOptions) -> bool:
    terminal = session.terminal
    if current is None:
        name = plan["spec"]["configuration"].get("name")
        question = f"Set up the fleet {name}?" if name else "Set up this fleet?"
    else:
        found = _changes(plan, current)
        if found:
            _show_changes(session, found, options)
        elif _lacks_hosts(current):
            question = f"Add the missing hosts to the fleet {current['name']} again?"
            return options.yes or _confirmed(terminal, question)
        elif options.yes and not options.force:
            terminal.print(f"Fleet {current['name']} is up to date. To delete and re-create it, add --force.")
            return False
        if found and plan["action"] == "update":
            question = f"Change the fleet {current['name']}?"
        else:
            question = f"Delete the fleet {current['name']} and its machines, and re-create it?"
    return options.yes or _confirmed(terminal, question)


def _show_changes(session: Session, found: list[Change], options: ApplyOptions) -> None:
    if not options.as_json:
        session.show(changes_table(found))
        session.terminal.print()


def _confirmed(terminal: Terminal, question: str) -> bool:
    if terminal.confirm(question):
        return True
    terminal.print("Nothing was changed.")
    return False


def _lacks_hosts(fleet: contract.Fleet) -> bool:
    """Does the fleet have hosts that couldn't be added?"""
    existing = {one["hostname"] for one in fleet["instances"] if one["status"] != "terminated"}
    hosts = (fleet["spec"]["configuration"].get("ssh_config") or {}).get("hosts") or ()
    return any((host if isinstance(host, str) else host["hostname"]) not in existing for host in hosts)


def _changes(plan: contract.FleetPlan, current: contract.Fleet) -> list[Change]:
    return changes(current["spec"], plan["effective_spec"])


def _wait(session: Session, fleet: contract.Fleet, *, asks: bool) -> int:
    """Waits until the fleet's machines are ready; fails if one has ended or isn't available."""
    terminal, name = session.terminal, fleet["name"]
    stages, polls, progress = Stages(session), 0, HostProgress(session)
    try:
        while _is_coming(fleet, polls):
            for line in progress.news(fleet):
                terminal.warn(line)
            stages.print(f"{_ready(fleet)} of {_wanted(fleet)} machines ready", f" · {polls * READY_SECONDS:.0f} s")
            terminal.sleep(READY_SECONDS)
            fleet, polls = session.get_fleet(name), polls + 1
        stages.close()
        for line in progress.news(fleet):
            terminal.warn(line)
    except KeyboardInterrupt:
        stages.close()
        if not asks or not terminal.confirm(f"Give up and delete the fleet {name}?"):
            terminal.print(f"Fleet {name} continues in the background; `dstack fleet` shows it.")
            return 0
        delete_fleet(session, name)
        terminal.print(f"Fleet {name} is deleted.")
        return 0
    failed = any(one["status"] == "terminated" for one in fleet["instances"])
    failed = failed or (bool(fleet["status_message"]) and _ready(fleet) < _wanted(fleet))
    session.show(fleets_table([fleet], terminal.now(), session.project, verbose=failed))
    return 1 if failed else 0


def _is_coming(fleet: contract.Fleet, polls: int) -> bool:
    """Is a machine being created or about to be? A fleet with a message is stuck."""
    if any(one["status"] in COMING for one in fleet["instances"]):
        return True
    return polls < POLLS_TO_ORDER and _ready(fleet) < _wanted(fleet) and not fleet["status_message"]


def _ready(fleet: contract.Fleet) -> int:
    return sum(one["status"] in READY for one in fleet["instances"])


def _wanted(fleet: contract.Fleet) -> int:
    """How many machines an apply creates, or how many exist already if that is more."""
    nodes = fleet["spec"]["configuration"].get("nodes") or {}
    alive = sum(one["status"] in (*READY, *COMING) for one in fleet["instances"])
    return max(nodes.get("min") or 0, nodes.get("target") or 0, alive)

"""`dstack event`: the history of every status change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from chalicelib.domain import pages
from chalicelib.errors import NotFound
from cli.commands.automation import stored
from cli.commands.secret import get_secret
from cli.connection import calls, console
from cli.connection.session import WATCH_SECONDS, Session, all_users, completer, open_session, watch
from cli.screen.parameters import Flags, JsonOption, ProjectOption, WatchOption, WebOption, command, new_group
from cli.screen.render import as_json
from cli.screen.since import since_moment
from cli.tables.cells import moment
from cli.tables.events import event_line

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

SYSTEM = "system"  # the actor of events of the control plane itself; no user has this name
LATE = 120.0  # seconds between a change and the commit of its event, at most

WHAT = "Show what happened to runs, jobs, fleets and instances."
app = new_group(WHAT, invoke_without_command=True)

Names = list[str] | None
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="All events since then: an age (2h) or a date.")
]
TargetFleet = Annotated[
    Names,
    typer.Option(
        "--target-fleet", metavar="NAME", help="Events of this fleet itself.", autocompletion=completer("fleet")
    ),
]
TargetRun = Annotated[
    Names,
    typer.Option("--target-run", metavar="NAME", help="Events of this run itself.", autocompletion=completer("run")),
]
TargetSecret = Annotated[
    Names,
    typer.Option("--target-secret", metavar="NAME", help="Events of this secret.", autocompletion=completer("secret")),
]
TargetVolume = Annotated[
    Names,
    typer.Option("--target-volume", metavar="NAME", help="Events of this volume.", autocompletion=completer("volume")),
]
TargetGateway = Annotated[
    Names,
    typer.Option(
        "--target-gateway", metavar="NAME", help="Events of this gateway.", autocompletion=completer("gateway")
    ),
]
TargetAutomation = Annotated[
    Names,
    typer.Option(
        "--target-automation",
        metavar="NAME",
        help="Events of this stored configuration, and what rules did with it.",
        autocompletion=completer("automation"),
    ),
]
WithinFleet = Annotated[
    Names, typer.Option("--within-fleet", metavar="NAME", help="Events of this fleet and its machines.")
]
WithinRun = Annotated[Names, typer.Option("--within-run", metavar="NAME", help="Events of this run and its jobs.")]
WithinGateway = Annotated[
    Names,
    typer.Option(
        "--within-gateway",
        metavar="NAME",
        help="Events of this gateway and its machines.",
        autocompletion=completer("gateway"),
    ),
]
Actor = Annotated[
    Names,
    typer.Option(
        "--actor",
        metavar="USER",
        help="What this user did; `system` is what the control plane did by itself.",
        autocompletion=completer("user"),
    ),
]
IncludeType = Annotated[
    Names, typer.Option("--include-target-type", metavar="TYPE", help="Events of this type: run, job, instance, …")
]


@command(
    app,
    "list",
    "dstack event list --within-run train",
    "dstack event list --since 2h --include-target-type job",
    "dstack event list --actor ann",
)
def list_events(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    watching: WatchOption = False,
    json_wanted: JsonOption = False,
    since: SinceOption = None,
    target_fleet: TargetFleet = None,
    target_run: TargetRun = None,
    target_secret: TargetSecret = None,
    target_volume: TargetVolume = None,
    target_gateway: TargetGateway = None,
    target_automation: TargetAutomation = None,
    within_fleet: WithinFleet = None,
    within_run: WithinRun = None,
    within_gateway: WithinGateway = None,
    include_type: IncludeType = None,
    actor: Actor = None,
    web: WebOption = False,
) -> None:
    """List events, oldest first: the last 100, or all since --since."""
    if ctx.invoked_subcommand is None:
        _list(ctx)


@command(app, "follow", "dstack event follow", "dstack event follow --since 1h | jq .message")
def follow(ctx: typer.Context, project: ProjectOption = None, since: SinceOption = None) -> None:
    """Print each state change of the project as it happens, until Ctrl-C.

    Each line is a JSON document, in the form that webhooks and the bus bring. None is printed twice. No --json: each
    line is one.
    """
    session = open_session(ctx, project)
    start = moment(since_moment(since, session.terminal.now())) or session.terminal.now()
    try:
        for change in followed(session, start):
            session.terminal.print(json.dumps(change, ensure_ascii=False))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def followed(session: Session, start: float) -> Iterator[contract.StateChange]:
    """Each change once, from `start` on. A change that is committed late has an earlier time, so the last seconds are
    read again each time."""
    seen: dict[str, float] = {}  # the times of changes, by id
    at = start
    while True:
        after: bodies.ChangesBody = {
            "prev_recorded_at": _date(max(start, at - LATE)),
            "prev_id": None,
            "limit": pages.EVENTS,
        }
        while True:
            page = calls.events_changes(session.client, after)
            for change in page:
                happened = moment(change["time"]) or 0.0
                if change["id"] not in seen:
                    seen[change["id"]] = happened
                    at = max(at, happened)
                    yield change
            if len(page) < pages.EVENTS:
                break
            after = {"prev_recorded_at": page[-1]["time"], "prev_id": page[-1]["id"], "limit": pages.EVENTS}
        seen = {id_: happened for id_, happened in seen.items() if happened >= at - 2 * LATE}
        session.terminal.sleep(WATCH_SECONDS)


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


app.callback(help=WHAT)(list_events)  # `dstack event` is `dstack event list`


def _list(ctx: typer.Context) -> None:
    flags = ctx.params
    targets = ("target_fleet", "target_run", "target_secret", "target_volume", "target_gateway", "target_automation")
    for kinds in (targets, ("within_fleet", "within_run", "within_gateway")):
        given = [f"--{name.replace('_', '-')}" for name in kinds if flags[name]]
        if len(given) > 1:
            raise typer.BadParameter(f"{' and '.join(given)} can't be combined.", ctx=ctx)
    session = open_session(ctx, flags["project"])
    if flags["web"]:
        console.show(session.terminal, session.client, "events", **_shown(flags))
        return
    start = since_moment(flags["since"], session.terminal.now())
    body = _filter(session, flags)

    def show() -> None:
        found = fetch_events(session, body, start)
        if flags["json_wanted"]:
            shown: contract.EventList = {"shape": 1, "project": session.project, "events": found}
            session.terminal.print(as_json(shown))
            return
        for one in found:
            session.terminal.print(event_line(one, session.terminal.width, session.terminal.colour))

    watch(session, show, flags["watching"], json_too=flags["json_wanted"])


def _shown(flags: Flags) -> dict[str, str]:
    """The filters that the console has, too: a thing, and who acted."""
    kinds = ("run", "fleet", "volume", "gateway", "secret", "automation")
    given = {kind: flags[f"target_{kind}"] or flags.get(f"within_{kind}") or () for kind in kinds}
    named = [f"{kind}/{name}" for kind, names in given.items() for name in names]
    people = [name for name in flags["actor"] or () if name != "system"]
    found = {"target": named[:1], "type": (flags["include_type"] or [])[:1], "user": people[:1]}
    return {key: values[0] for key, values in found.items() if values}


def _filter(session: Session, flags: Flags) -> bodies.ListEventsBody:
    def ids(flag: str, find: Callable[[str], contract.Fleet | contract.Run | contract.Named]) -> list[str] | None:
        return [find(name)["id"] for name in flags[flag] or ()] or None

    body: bodies.ListEventsBody = {
        "target_fleets": ids("target_fleet", session.get_fleet),
        "target_runs": ids("target_run", session.get_run),
        "target_secrets": ids("target_secret", lambda name: get_secret(session, name)),
        "target_volumes": ids("target_volume", session.get_volume),
        "target_automations": ids("target_automation", lambda name: stored(session, name)),
        "target_gateways": ids("target_gateway", session.get_gateway),
        "within_projects": None,
        "within_fleets": ids("within_fleet", session.get_fleet),
        "within_runs": ids("within_run", session.get_run),
        "within_gateways": ids("within_gateway", session.get_gateway),
    }
    if not any(body.values()) and not flags["actor"]:  # an actor's events may be in any project
        body["within_projects"] = [calls.projects_get(session.client, session.project)["project_id"]]
    return {**body, "include_target_types": flags["include_type"] or None, "actors": _actors(session, flags["actor"])}


def _actors(session: Session, names: list[str] | None) -> list[str | None] | None:
    """The ids of users; None in the list is the control plane itself."""
    if not names:
        return None
    known = {user["username"]: user["id"] for user in all_users(session.client)}
    session.cache_names("user", known)
    missing = [name for name in names if name != SYSTEM and name not in known]
    if missing:
        raise NotFound(f"There is no user {missing[0]} that you may see.", hint="See them with `dstack user`.")
    return [None if name == SYSTEM else known[name] for name in names]


def fetch_events(session: Session, body: bodies.ListEventsBody, start: str | None) -> list[contract.Event]:
    """Events, oldest first. The API pages from the newest back; pages are read until they reach `start`, if given."""
    begin = moment(start)
    found: list[contract.Event] = []
    while True:
        page = calls.events_list(
            session.client,
            {
                **body,
                "prev_recorded_at": found[-1]["recorded_at"] if found else None,
                "prev_id": found[-1]["id"] if found else None,
                "limit": pages.EVENTS,
                "ascending": False,
            },
        )
        fresh = [one for one in page if begin is None or (moment(one["recorded_at"]) or 0) >= begin]
        found += fresh
        if begin is None or not page or len(fresh) < len(page):  # a page may be short before the last one
            return found[::-1]

"""`dstack project quota`: the most that a project, and each of its users, may use at once and in a day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from cli.connection import calls, console
from cli.connection.session import open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, command
from cli.screen.render import Table, as_json

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

N = TypeVar("N", int, float)
OFF = "off"
EACH = "each user"


def add_to(group: typer.Typer) -> None:
    command(
        group,
        "quota",
        "dstack project quota",
        "dstack project quota --gpus 12 --jobs 40 --money 200",
        "dstack project quota --user alice --gpus 4",
        "dstack project quota --each-user --gpus 2 --money off",
    )(quota)


def quota(
    ctx: typer.Context,
    *,
    project: ProjectOption = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="N|off", help="The most GPUs that its jobs have at once.")
    ] = None,
    jobs: Annotated[
        str | None, typer.Option("--jobs", metavar="N|off", help="The most jobs that have a place at once.")
    ] = None,
    money: Annotated[
        str | None,
        typer.Option(
            "--money", metavar="DOLLARS|off", help="Once a day's jobs have cost that, none starts until 00:00 UTC."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Limit this user in the project.")] = None,
    each_user: Annotated[
        bool, typer.Option("--each-user", help="Limit each user of the project who has no limit of their own.")
    ] = False,
    json_wanted: JsonOption = False,
    web: WebOption = False,
) -> None:
    """Show or set the quota of a project. Runs over it wait.

    Global admins set the quota of a project, its own admins those of its users.
    """
    if user is not None and each_user:
        raise typer.BadParameter("--user and --each-user exclude each other.", ctx=ctx)
    changes: bodies.SetBody = {}
    if gpus is not None:
        changes["gpus"] = _limit(ctx, "--gpus", gpus, int)
    if jobs is not None:
        changes["jobs"] = _limit(ctx, "--jobs", jobs, int)
    if money is not None:
        changes["money"] = _limit(ctx, "--money", money, float)
    if not changes and (user is not None or each_user):
        raise typer.BadParameter("give a limit: --gpus, --jobs or --money.", ctx=ctx)
    session = open_session(ctx, project)
    if changes:
        body: bodies.SetBody = {"username": user, "each_user": each_user, **changes}
        found = calls.projects_set_quota(session.client, session.project, body)
    else:
        found = calls.projects_get_quota(session.client, session.project)
    if web:
        console.show(session.terminal, session.client, "settings", "quotas")
        return
    if json_wanted:
        shown: contract.ProjectQuota = {"shape": 1, "project": session.project, "quota": found}
        session.terminal.print(as_json(shown))
        return
    session.show(quota_table(found))


def _limit(ctx: typer.Context, flag: str, text: str, kind: type[N]) -> N | None:
    if text == OFF:
        return None
    try:
        number = kind(text.removeprefix("$"))
    except ValueError:
        number = kind(-1)
    if not 0 <= number < float("inf"):
        what = "a whole number" if kind is int else "an amount of dollars"
        raise typer.BadParameter(f"{flag} takes {what} or `{OFF}`, not {text!r}.", ctx=ctx)
    return number


def quota_table(found: contract.Quota) -> Table:
    """The used part of each limit, for the project and below it for its users."""
    table = Table(("WHO", "GPUS", "JOBS", "MONEY TODAY"))
    table.add(found["project_name"], *_cells(found["limits"], found["used"]))
    if any(most is not None for most in found["each_user"].values()):
        table.add(f"  {EACH}", *_cells(found["each_user"], None))
    for each in found["users"]:
        table.add(f"  {each['username']}", *_cells(each["limits"], each["used"]))
    return table


def _cells(limits: contract.Limits, used: contract.Used | None) -> tuple[str, str, str]:
    def cell(name: Literal["gpus", "jobs", "money"], written: str) -> str:
        most = "-" if limits[name] is None else written.format(limits[name])
        amount = None if used is None else used[name]
        if amount is None:
            return most
        has = f"${amount:.2f}" if name == "money" else str(amount)
        return has if limits[name] is None else f"{has} of {most}"

    return cell("gpus", "{}"), cell("jobs", "{}"), cell("money", "${:g}")

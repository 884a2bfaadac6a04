"""`dstack project`: the servers and projects that this machine knows, and the members of these projects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from chalicelib.errors import DstackError, Refused
from cli.commands import quota
from cli.connection import calls, console
from cli.connection.client import Client, in_clear
from cli.connection.config import ProjectEntry, config_path, default_of, load_projects, save_projects, with_project
from cli.connection.session import completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, YesOption, command, new_group
from cli.screen.render import Table, as_json, render
from cli.screen.terminal import Terminal, terminal
from cli.tables.people import members_table

if TYPE_CHECKING:
    from chalicelib import contract

app = new_group("Manage the projects this machine knows, and their members.", invoke_without_command=True)
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also show your user on each server.")]
NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="The project's name on its server.")]


@app.callback()
def project(ctx: typer.Context, verbose: Verbose = False) -> None:
    """Manage the projects this machine knows, and their members."""
    if ctx.invoked_subcommand is None:
        _list(terminal(ctx), verbose, json_wanted=False)


@command(
    app,
    "add",
    "dstack project add --name main --url http://127.0.0.1:3000 --token 1f0a",
    "dstack project add --name research --url https://gpu.example.com --token $TOKEN -y",
)
def add(
    ctx: typer.Context,
    *,
    name: NameOption,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server's address.")],
    token: Annotated[
        str, typer.Option("--token", metavar="TOKEN", help="Your token there; `-` reads it from standard input.")
    ],
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Make it the default without asking.")] = False,
    no: Annotated[bool, typer.Option("-n", "--no", help="Leave the default as it is, without asking.")] = False,
) -> None:
    """Add a project, after checking its URL and token.

    The first project becomes the default. No --json: it prints one line; the project is in ~/.dstack/config.yml.
    """
    if yes and no:
        raise typer.BadParameter("-y and -n contradict each other.", ctx=ctx)
    here = terminal(ctx)
    token = here.secret(token, "--token")
    client = Client(url, token, name, sleep=here.sleep, via=here.via)
    if warning := in_clear(client.url):
        here.warn(warning)
    calls.projects_get(client, name)
    path = config_path(here.home)
    projects = load_projects(path)
    default = default_of(projects)
    chosen = yes
    if default and default.name != name and not yes and not no:
        chosen = here.confirm(
            f"Make {name} the default project instead of {default.name}?",
            unattended="Add -y to make it the default, or -n to leave the default as it is.",
        )
    save_projects(path, with_project(projects, ProjectEntry(name, url.rstrip("/"), token, chosen)))
    here.print(f"Project {name} at {url.rstrip('/')} is {'changed' if _named(projects, name) else 'added'}.")


@command(app, "list", "dstack project list", "dstack project list -v --json")
def list_projects(ctx: typer.Context, verbose: Verbose = False, json_wanted: JsonOption = False) -> None:
    """List the projects this machine knows. Tokens are not shown."""
    _list(terminal(ctx), verbose, json_wanted)


def _list(here: Terminal, verbose: bool, json_wanted: bool) -> None:
    projects = load_projects(config_path(here.home))
    users = {p.name: _user(p, here) for p in projects} if verbose else {}
    if json_wanted:
        rows: list[contract.KnownProject] = [{"project": p.name, "url": p.url, "default": p.default} for p in projects]
        if verbose:
            rows = [{**row, "user": users[row["project"]]} for row in rows]
        shown: contract.ProjectList = {"shape": 1, "projects": rows}
        here.print(as_json(shown))
        return
    table = Table(("PROJECT", "URL", "USER", "DEFAULT") if verbose else ("PROJECT", "URL", "DEFAULT"))
    for p in projects:
        user = (users[p.name],) if verbose else ()
        table.add(p.name, p.url, *user, "✓" if p.default else "")
    here.print(render(table, here.width, here.colour))
    if not projects:
        here.warn("No projects yet. Add one with `dstack project add`, or start a server with `dstack server`.")


def _user(entry: ProjectEntry, here: Terminal) -> str:
    """The token's user or, in brackets, why it isn't known: one dead server must not hide the others."""
    try:
        client = Client(entry.url, entry.token, entry.name, sleep=here.sleep, via=here.via)
        return str(calls.users_get_my_user(client)["username"])
    except DstackError as error:
        return f"({error.message})"


@command(app, "set-default", "dstack project set-default main", "dstack project set-default research")
def set_default(
    ctx: typer.Context,
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The project's name.", autocompletion=completer("project"))
    ],
) -> None:
    """Choose the project that commands use when none is named.

    No --json: it prints one line.
    """
    here = terminal(ctx)
    path = config_path(here.home)
    projects = load_projects(path)
    found = _required(projects, name)
    save_projects(path, with_project(projects, ProjectEntry(found.name, found.url, found.token, default=True)))
    here.print(f"{name} is now the default project.")


@command(app, "delete", "dstack project delete --name research", "dstack project delete --name research --on-server -y")
def delete(
    ctx: typer.Context,
    *,
    name: NameOption,
    on_server: Annotated[
        bool, typer.Option("--on-server", help="Delete it on its server too, for everybody and for good.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Remove a project from this machine. Without --on-server nothing changes on its server.

    No --json: it prints one line.
    """
    here = terminal(ctx)
    path = config_path(here.home)
    projects = load_projects(path)
    found = _required(projects, name)
    question = f"Remove the project {name} at {found.url} and its token from this machine?"
    if on_server:
        question = (
            f"Delete the project {name} at {found.url} for everybody, with its secrets and the history of its runs?"
        )
    if not yes and not here.confirm(question):
        here.print("Nothing was changed.")
        return
    if on_server:
        client = Client(found.url, found.token, name, sleep=here.sleep, via=here.via)
        calls.projects_delete(client, {"projects_names": [name]})
        here.print(f"Project {name} is deleted on its server.")
    save_projects(path, [p for p in projects if p.name != name])
    here.print(f"Project {name} is removed from this machine.")
    if found.default and len(projects) > 1:
        here.warn("It was the default; choose another with `dstack project set-default NAME`.")


@command(app, "create", "dstack project create research", "dstack project create demo --public")
def create(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new project's name.")],
    public: Annotated[
        bool, typer.Option("--public", help="Let every user of the server see it, and join it as a user.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Create a project on the server, with you as its admin, and add it to those this machine knows.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    calls.projects_create(session.client, {"project_name": name, "is_public": public})
    path = config_path(session.terminal.home)
    known = load_projects(path)
    if any(p.url == session.client.url and p.token == session.client.token for p in known) and not _named(known, name):
        save_projects(path, with_project(known, ProjectEntry(name, session.client.url, session.client.token)))
    session.terminal.print(f"Project {name} is created. Use it with --project {name}.")


RoleOption = Annotated[
    Literal["user", "manager", "admin"],
    typer.Option("--role", metavar="ROLE", help="In the project: user, manager or admin."),
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.", autocompletion=completer("user"))]


@command(app, "members", "dstack project members", "dstack project members --project research --json")
def members(
    ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False, web: WebOption = False
) -> None:
    """List who is a member of a project, and in which role."""
    session = open_session(ctx, project)
    if web:
        console.show(session.terminal, session.client, "settings", "members")
        return
    found = calls.projects_get(session.client, session.project)["members"]
    session.cache_names("user", [member["user"]["username"] for member in found])
    if json_wanted:
        shown: contract.ProjectMembers = {"shape": 1, "project": session.project, "members": found}
        session.terminal.print(as_json(shown))
        return
    session.show(members_table(found))


@command(app, "add-member", "dstack project add-member ann", "dstack project add-member bob --role manager")
def add_member(
    ctx: typer.Context, *, user: UserArgument, role: RoleOption = "user", project: ProjectOption = None
) -> None:
    """Add a user to a project, or change their role in it.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    calls.projects_add_members(session.client, session.project, {"members": [{"username": user, "project_role": role}]})
    session.terminal.print(f"{user} is {'an' if role == 'admin' else 'a'} {role} of project {session.project}.")


@command(app, "remove-member", "dstack project remove-member ann", "dstack project remove-member ann -y")
def remove_member(
    ctx: typer.Context, user: UserArgument, project: ProjectOption = None, yes: YesOption = False
) -> None:
    """Remove a user from a project. They are out at once: of jobs that run, too. Their runs go on.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    if not yes and not session.terminal.confirm(f"Remove {user} from project {session.project}?"):
        session.terminal.print("Nothing was changed.")
        return
    calls.projects_remove_members(session.client, session.project, {"usernames": [user]})
    session.terminal.print(f"{user} is no longer a member of project {session.project}.")


quota.add_to(app)


def _named(projects: list[ProjectEntry], name: str) -> ProjectEntry | None:
    return next((p for p in projects if p.name == name), None)


def _required(projects: list[ProjectEntry], name: str) -> ProjectEntry:
    found = _named(projects, name)
    if found is None:
        known = ", ".join(p.name for p in projects) or "none yet"
        raise Refused(f"There is no project {name} on this machine.", hint=f"Projects here: {known}.")
    return found

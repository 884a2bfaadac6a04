"""`dstack project`: the servers and projects this machine knows. `add`, `quota` and `list -v` speak to a server."""

from __future__ import annotations

from typing import Annotated

import typer

from chalicelib.errors import DstackError, Refused
from cli.client import Client
from cli.commands import quota
from cli.config import ProjectEntry, config_path, default_of, load_projects, save_projects, with_project
from cli.parameters import JsonOption, YesOption, command, new_group
from cli.render import Table, as_json, render
from cli.session import completer
from cli.shapes import document
from cli.terminal import Terminal, terminal

app = new_group("Manage the servers and projects this machine knows.", invoke_without_command=True)
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Also show your user on each server.")]
NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="The project's name on its server.")]


@app.callback()
def project(ctx: typer.Context, verbose: Verbose = False) -> None:
    """Manage the servers and projects this machine knows."""
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
    Client(url, token, name, sleep=here.sleep, via=here.via).post(f"/api/projects/{name}/get")
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
    here.say(f"Project {name} at {url.rstrip('/')} is {'changed' if _named(projects, name) else 'added'}.")


@command(app, "list", "dstack project list", "dstack project list -v --json")
def list_projects(ctx: typer.Context, verbose: Verbose = False, json_wanted: JsonOption = False) -> None:
    """List the projects this machine knows. Tokens are not shown."""
    _list(terminal(ctx), verbose, json_wanted)


def _list(here: Terminal, verbose: bool, json_wanted: bool) -> None:
    projects = load_projects(config_path(here.home))
    users = {p.name: _user(p, here) for p in projects} if verbose else {}
    if json_wanted:
        rows = [{"project": p.name, "url": p.url, "default": p.default} for p in projects]
        if verbose:
            rows = [{**row, "user": users[str(row["project"])]} for row in rows]
        here.say(as_json(document("project list", {"projects": rows})))
        return
    table = Table(("PROJECT", "URL", "USER", "DEFAULT") if verbose else ("PROJECT", "URL", "DEFAULT"))
    for p in projects:
        user = (users[p.name],) if verbose else ()
        table.add(p.name, p.url, *user, "✓" if p.default else "")
    here.say(render(table, here.width, here.colour))
    if not projects:
        here.warn("No projects yet. Add one with `dstack project add`, or start a server with `dstack server`.")


def _user(entry: ProjectEntry, here: Terminal) -> str:
    """The name behind the token, or in brackets why it isn't known; one dead server must not hide the others."""
    try:
        client = Client(entry.url, entry.token, entry.name, sleep=here.sleep, via=here.via)
        return str(client.post("/api/users/get_my_user")["username"])
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
    here.say(f"{name} is now the default project.")


@command(app, "delete", "dstack project delete --name research", "dstack project delete --name research -y")
def delete(ctx: typer.Context, name: NameOption, yes: YesOption = False) -> None:
    """Remove a project from this machine. Nothing changes on its server.

    No --json: it prints one line.
    """
    here = terminal(ctx)
    path = config_path(here.home)
    projects = load_projects(path)
    found = _required(projects, name)
    if not yes and not here.confirm(f"Remove the project {name} at {found.url} and its token from this machine?"):
        here.say("Nothing was changed.")
        return
    save_projects(path, [p for p in projects if p.name != name])
    here.say(f"Project {name} is removed from this machine.")
    if found.default and len(projects) > 1:
        here.warn("It was the default; choose another with `dstack project set-default NAME`.")


quota.add_to(app)


def _named(projects: list[ProjectEntry], name: str) -> ProjectEntry | None:
    return next((p for p in projects if p.name == name), None)


def _required(projects: list[ProjectEntry], name: str) -> ProjectEntry:
    found = _named(projects, name)
    if found is None:
        known = ", ".join(p.name for p in projects) or "none yet"
        raise Refused(f"There is no project {name} on this machine.", hint=f"Projects here: {known}.")
    return found

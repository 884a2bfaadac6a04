"""`dstack login`: sign on with an account at a provider, and add the projects that it may use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, urlsplit

import typer

from chalicelib.errors import Refused
from cli.connection import calls
from cli.connection.callback import Callback
from cli.connection.client import Client, in_clear
from cli.connection.config import ProjectEntry, config_path, default_of, load_projects, save_projects, with_project
from cli.connection.id_tokens import id_token
from cli.connection.server_values import checked, seconds, web_address
from cli.connection.server_values import token as token_of
from cli.screen.parameters import command, new_group
from cli.screen.terminal import Terminal, terminal
from cli.tables.cells import local_time

if TYPE_CHECKING:
    from chalicelib import contract

NAME = re.compile(r"[\w.-]{1,100}")
app = new_group("Sign on with an account, and add the projects you may use.")


@command(
    app,
    "login",
    "dstack login --url https://gpu.example.com",
    "dstack login --url https://gpu.example.com -p corp --device",
    "dstack login --url https://gpu.example.com --oidc",
)
def login(
    ctx: typer.Context,
    *,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The server's address; default your default project's.")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option("-p", "--provider", metavar="NAME", help="The provider of your account, if there are several."),
    ] = None,
    device: Annotated[
        bool, typer.Option("--device", help="Show a code to type in a browser elsewhere, instead of opening one here.")
    ] = False,
    oidc: Annotated[
        bool,
        typer.Option("--oidc", help="Sign on as a program, with the ID token of the place where it runs, as in CI."),
    ] = False,
    id_token_file: Annotated[
        str | None,
        typer.Option(
            "--id-token-file",
            metavar="FILE",
            help="With --oidc: the file with the ID token; - for standard input. "
            "Default DSTACK_ID_TOKEN, or what GitHub Actions makes.",
        ),
    ] = None,
    audience: Annotated[
        str | None,
        typer.Option("--audience", metavar="NAME", help="With --oidc: for whom GitHub makes it; default the address."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="Make the first project the default, without asking.")
    ] = False,
    no: Annotated[bool, typer.Option("-n", "--no", help="Leave the default as it is, without asking.")] = False,
) -> None:
    """Sign on with an account, and add the projects you may use.

    The account is one at a provider that the server's operator has chosen. No --json: it prints what it does; the
    projects are in ~/.dstack/config.yml. A CI job signs on with --oidc, without an account or a stored token.
    """
    if yes and no:
        raise typer.BadParameter("-y and -n contradict each other.", ctx=ctx)
    if oidc and (provider or device):
        raise typer.BadParameter("--oidc needs no account: leave out -p and --device.", ctx=ctx)
    if not oidc and (id_token_file or audience):
        raise typer.BadParameter("--id-token-file and --audience need --oidc.", ctx=ctx)
    here = terminal(ctx)
    client = Client(_url(here, url), "", sleep=here.sleep, via=here.via)
    if warning := in_clear(client.url):
        here.warn(warning)
    default = True if yes else False if no else None
    if oidc:
        _as_program(here, client, id_token(here, id_token_file, audience or client.url), default)
        return
    name = _provider(client, provider)
    entered = _by_code(here, client, name) if device else _by_browser(here, client, name)
    token = token_of(entered["creds"]["token"])
    here.print(f"You are {entered['username']} at {client.url}.")
    signed_on = Client(client.url, token, sleep=here.sleep, via=here.via)
    joined = [checked(NAME, project["project_name"], "a project's name") for project in _projects(signed_on)]
    if not joined:
        raise Refused(
            "You aren't a member of any project there.",
            hint=f"Ask an admin of a project to add {entered['username']}, and sign on again.",
        )
    _add(here, client.url, token, joined, default=default)


def _as_program(here: Terminal, client: Client, shown: str, default: bool | None) -> None:
    """Signs on with the ID token that a program was given."""
    entered = client.post("/api/auth/oidc/exchange", {"id_token": shown})
    granted, token = entered["access_token"], token_of(entered["token"])
    projects = [checked(NAME, name, "a project's name") for name in granted["projects"]]
    may, until = ", ".join(granted["verbs"]), local_time(granted["expires_at"])
    here.print(f"You are {entered['username']} at {client.url}, and may {may} until {until}.")
    _add(here, client.url, token, projects, default=default)


def _projects(client: Client) -> list[contract.Project]:
    found = calls.projects_list(client, {"include_not_joined": False})
    return found if isinstance(found, list) else found["projects"]


def _url(here: Terminal, url: str | None) -> str:
    default = default_of(load_projects(config_path(here.home)))
    if url is None and default is None:
        raise Refused("Which server?", hint="Add --url URL.")
    return (url or (default.url if default else "")).rstrip("/")


def _provider(client: Client, wanted: str | None) -> str:
    names = [each["name"] for each in calls.auth_list_providers(client) if each["enabled"]]
    if not names:
        raise Refused(
            f"Nobody can sign on at {client.url}: no account provider is configured.",
            hint="Add a project with its token: `dstack project add --name NAME --url URL --token TOKEN`.",
        )
    if wanted is None and len(names) > 1:
        raise Refused(
            "This server takes accounts of several providers.", hint=f"Add -p with one of {', '.join(names)}."
        )
    if wanted is not None and wanted not in names:
        raise Refused(f"There is no provider {wanted}.", hint=f"There are: {', '.join(names)}.")
    return wanted or str(names[0])


def _by_browser(here: Terminal, client: Client, provider: str) -> contract.UserWithCreds:
    with Callback() as callback:
        begun = calls.auth_authorize(client, provider, {"local_port": callback.port, "base_url": None})
        address = web_address(begun["authorization_url"])
        state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        here.print(f"Sign on in your browser. If it doesn't open, go to\n\n  {address}\n")
        here.browse(address)
        code = callback.code(state)
    return calls.auth_callback(client, provider, {"code": code, "state": state, "base_url": None})


def _by_code(here: Terminal, client: Client, provider: str) -> contract.UserWithCreds:
    begun = calls.auth_device(client, provider)
    here.print(f"Go to {web_address(begun['verification_uri'])} in any browser and type\n\n  {begun['user_code']}\n")
    if begun["verification_uri_complete"]:
        here.print(f"or open {web_address(begun['verification_uri_complete'])}")
    return _polled(here, lambda: calls.auth_device_token(client, provider, {"state": begun["state"]}), begun)


def _polled(
    here: Terminal, poll: Callable[[], contract.UserWithCreds | None], begun: contract.DeviceCode
) -> contract.UserWithCreds:
    until = here.now() + seconds(begun["expires_in"])
    while here.now() < until:
        here.sleep(seconds(begun["interval"]))
        entered = poll()
        if entered is not None:
            return entered
    raise Refused("Nobody signed on with this code in time.", hint="Run the command again.")


def _add(here: Terminal, url: str, token: str, joined: list[str], *, default: bool | None) -> None:
    """Adds the projects. `default`: may the first become the default in place of another? None: ask the user."""
    path = config_path(here.home)
    projects = load_projects(path)
    now, first = default_of(projects), joined[0]
    chosen = bool(default)
    if now and now.name not in joined and default is None:
        chosen = here.confirm(
            f"Make {first} the default project instead of {now.name}?",
            unattended="Add -y to make it the default, or -n to leave the default as it is.",
        )
    for name in joined:
        projects = with_project(projects, ProjectEntry(name, url, token, chosen and name == first))
    save_projects(path, projects)
    now = default_of(projects)
    here.print(f"Projects: {', '.join(joined)}. The default is {now.name if now else 'not set'}.")

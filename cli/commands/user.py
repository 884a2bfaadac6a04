"""`dstack user`: the users of a server, their tokens, and the public keys with which you log in to jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from chalicelib.errors import Refused
from cli.connection import calls, console
from cli.connection.session import Session, all_users, completer, open_session
from cli.screen.parameters import JsonOption, ProjectOption, WebOption, YesOption, command, new_group
from cli.screen.render import as_json
from cli.screen.terminal import STANDARD_INPUT
from cli.tables.people import keys_table, users_table

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies

WHAT = "Manage the users of a server, and your own public keys."
app = new_group(WHAT, invoke_without_command=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", autocompletion=completer("user"))]
Role = Literal["admin", "user"]
EmailOption = Annotated[str | None, typer.Option("--email", metavar="EMAIL", help="Their address, for people to see.")]


@app.callback(help=WHAT)
def user(ctx: typer.Context, project: ProjectOption = None, web: WebOption = False) -> None:
    if ctx.invoked_subcommand is None:
        _list(open_session(ctx, project), json_wanted=False, web=web)


@command(app, "list", "dstack user list", "dstack user list --json")
def list_users(
    ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False, web: WebOption = False
) -> None:
    """List users: all of the server for an admin, else those of your projects."""
    _list(open_session(ctx, project), json_wanted, web=web)


def _list(session: Session, json_wanted: bool, *, web: bool) -> None:
    if web:
        console.show(session.terminal, session.client, "users")
        return
    found = all_users(session.client)
    session.cache_names("user", [one["username"] for one in found])
    if json_wanted:
        shown: contract.UserList = {"shape": 1, "users": found}
        session.terminal.print(as_json(shown))
        return
    session.show(users_table(found, session.terminal.now()))


@command(app, "create", "dstack user create ann", "dstack user create root2 --role admin --email root2@example.com")
def create(
    ctx: typer.Context,
    *,
    name: NameArgument,
    role: Annotated[Role, typer.Option("--role", metavar="ROLE", help="On the whole server: user or admin.")] = "user",
    email: EmailOption = None,
    project: ProjectOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Create a user and print the token, which nobody can see again. Admins only."""
    session = open_session(ctx, project)
    body: bodies.SaveUserBody = {"username": name, "global_role": role, "email": email, "active": True}
    answer = calls.users_create(session.client, body)
    if json_wanted:
        user = {key: value for key, value in answer.items() if key not in ("creds", "ssh_private_key")}
        shown: contract.UserCreate = {
            "shape": 1,
            "user": cast("contract.User", user),
            "token": answer["creds"]["token"],
        }
        session.terminal.print(as_json(shown))
        return
    session.terminal.print(f"User {name} is created. Their token, shown only this once:")
    _print_token(session, answer)


@command(app, "update", "dstack user update ann --role admin", "dstack user update ann --inactive")
def update(
    ctx: typer.Context,
    *,
    name: NameArgument,
    role: Annotated[Role | None, typer.Option("--role", metavar="ROLE", help="On the server: user or admin.")] = None,
    email: EmailOption = None,
    active: Annotated[bool, typer.Option("--active", help="Let them in again.")] = False,
    inactive: Annotated[
        bool, typer.Option("--inactive", help="Lock them out, and cut off what they have open.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Change a user's role or address, or whether they are let in. Admins only.

    No --json: it prints one line.
    """
    if active and inactive:
        raise typer.BadParameter("--active and --inactive contradict each other.", ctx=ctx)
    session = open_session(ctx, project)
    now = calls.users_get_user(session.client, {"username": name})
    wanted: bodies.SaveUserBody = {
        "username": name,
        "global_role": role or now["global_role"],
        "email": now["email"] if email is None else email or None,
        "active": (now["active"] or active) and not inactive,
    }
    after = calls.users_update(session.client, wanted)
    state = after["global_role"] if after["active"] else f"{after['global_role']}, inactive"
    session.terminal.print(f"User {name}: {state}{', ' + after['email'] if after['email'] else ''}.")


@command(app, "token", "dstack user token ann", "dstack user token ann -y")
def token(ctx: typer.Context, name: NameArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Replace a user's token: the old one is refused from now on, and what was opened with it is cut off.

    Everybody may replace their own, admins everybody's. The user's access tokens stay as they are. No --json: it prints
    the token.
    """
    session = open_session(ctx, project)
    if not yes and not session.terminal.confirm(f"Replace the token of {name}? The present one stops working at once."):
        session.terminal.print("Nothing was changed.")
        return
    others = calls.users_access_tokens_list(session.client, {"username": name})
    _print_token(session, calls.users_refresh_token(session.client, {"username": name}))
    if others:
        session.terminal.warn(
            f"Still valid: {access_tokens(others)}. Revoke one: dstack token revoke NAME --user {name}"
        )


def access_tokens(found: list[contract.AccessToken]) -> str:
    return f"the access token {found[0]['name']}" if len(found) == 1 else f"{len(found)} access tokens"


def _print_token(session: Session, found: contract.UserWithCreds) -> None:
    session.terminal.print(found["creds"]["token"])
    session.terminal.warn(
        f"They use it like this: dstack project add --name {session.project} --url {session.client.url} --token TOKEN"
    )


@command(app, "delete", "dstack user delete ann", "dstack user delete ann bob -y")
def delete(
    ctx: typer.Context,
    *,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The users' names.", autocompletion=completer("user"))
    ],
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Delete users with their tokens, keys and memberships. What they started goes on. Admins only.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    listed = ", ".join(names)
    if not yes and not session.terminal.confirm(f"Delete {listed} for good?"):
        session.terminal.print("Nothing was deleted.")
        return
    calls.users_delete(session.client, {"users": names})
    session.terminal.print(f"Deleted: {listed}.")


# --- one's own public keys --------------------------------------------------------------------------------------------


@command(app, "keys", "dstack user keys", "dstack user keys --json")
def keys(
    ctx: typer.Context, project: ProjectOption = None, json_wanted: JsonOption = False, web: WebOption = False
) -> None:
    """List your public keys: each job that you may attach to lets them in."""
    session = open_session(ctx, project)
    if web:
        console.show(session.terminal, session.client, "account")
        return
    found = calls.users_public_keys_list(session.client)
    if json_wanted:
        shown: contract.UserKeys = {"shape": 1, "keys": found}
        session.terminal.print(as_json(shown))
        return
    session.show(keys_table(found, session.terminal.now()))


@command(app, "add-key", "dstack user add-key ~/.ssh/id_ed25519.pub", "dstack user add-key --name yubikey - < key.pub")
def add_key(
    ctx: typer.Context,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A public key's file; `-` reads standard input.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What to call it; default the key's own comment.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Add one of your public keys. Jobs that run let it in too, with the next message of their host.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    text = sys.stdin.read() if file == STANDARD_INPUT else _text_of(session.terminal.cwd / Path(file).expanduser())
    answer = calls.users_public_keys_add(session.client, {"key": text, "name": name})
    session.terminal.print(f"Key {answer['name']} is added: {answer['fingerprint']}.")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:20_000]
    except OSError as error:
        raise Refused(f"{path} can't be read: {error.strerror}.", hint="Make a key: ssh-keygen -t ed25519") from error


@command(app, "delete-key", "dstack user delete-key yubikey", "dstack user delete-key SHA256:Eh1Ip0zc9i -y")
def delete_key(
    ctx: typer.Context,
    *,
    which: Annotated[str, typer.Argument(metavar="KEY", help="Its name, or how its fingerprint or id begins.")],
    project: ProjectOption = None,
    yes: YesOption = False,
) -> None:
    """Delete one of your public keys. Sessions that use it are cut off.

    No --json: it prints one line.
    """
    session = open_session(ctx, project)
    found = calls.users_public_keys_list(session.client)
    fits = [key for key in found if which == key["name"] or key["fingerprint"].startswith(which)]
    fits = fits or [key for key in found if key["id"].startswith(which)]
    if len(fits) != 1:
        raise Refused(
            f"You have {'no key' if not fits else 'more than one key'} {which!r}.",
            hint="See them with `dstack user keys`, and name one by its fingerprint.",
        )
    if not yes and not session.terminal.confirm(f"Delete the key {fits[0]['name']} ({fits[0]['fingerprint']})?"):
        session.terminal.print("Nothing was deleted.")
        return
    calls.users_public_keys_delete(session.client, {"ids": [fits[0]["id"]]})
    session.terminal.print(f"Key {fits[0]['name']} is deleted.")

"""One command's requests to its server, and the cache of names for shell completion."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from chalicelib.errors import NotFound
from cli.connection import calls
from cli.connection.client import Client
from cli.connection.config import resolve_endpoint
from cli.connection.server_values import is_word
from cli.screen.render import Table, render
from cli.screen.terminal import Terminal, terminal

if TYPE_CHECKING:
    from chalicelib import contract

WATCH_SECONDS = 2.0
CACHED_NAMES = 200
CLEAR = b"\x1b[2J\x1b[H\n"


@dataclass(frozen=True)
class Session:
    terminal: Terminal
    client: Client

    @property
    def project(self) -> str:
        return self.client.project

    def show(self, table: Table) -> None:
        self.terminal.print(render(table, self.terminal.width, self.terminal.colour))

    def get_run(self, name: str) -> contract.Run:
        try:
            found = calls.runs_get(self.client, {"run_name": name, "id": None})
        except NotFound:
            raise NotFound(
                f"There is no run {name} in project {self.project}.", hint="See them all with `dstack ps -a`."
            ) from None
        return found

    def get_fleet(self, name: str) -> contract.Fleet:
        try:
            found = calls.fleets_get(self.client, {"name": name, "id": None})
        except NotFound:
            raise NotFound(
                f"There is no fleet {name} in project {self.project}.", hint="See them with `dstack fleet`."
            ) from None
        return found

    def get_volume(self, name: str) -> contract.Volume:
        try:
            found = calls.volumes_get(self.client, {"name": name})
        except NotFound:
            raise NotFound(
                f"There is no volume {name} in project {self.project}.", hint="See them with `dstack volume`."
            ) from None
        return found

    def get_gateway(self, name: str) -> contract.GatewayWithCertificates:
        try:
            found = calls.gateways_get(self.client, {"name": name})
        except NotFound:
            raise NotFound(
                f"There is no gateway {name} in project {self.project}.", hint="See them with `dstack gateway`."
            ) from None
        return found

    def cache_names(self, kind: str, names: Iterable[str]) -> None:
        """Caches names for completion; a cache that can't be written is a warning, not a failure."""
        path = names_path(self.terminal.home)
        known = read_names(path)
        fresh = [name for name in dict.fromkeys(names) if name][:CACHED_NAMES]
        if known.get(kind) == fresh:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(json.dumps({**known, kind: fresh}), encoding="utf-8")
        except OSError as error:
            self.terminal.warn(f"Names for completion were not kept: {error}.")


def open_session(ctx: typer.Context, project: str | None) -> Session:
    found = terminal(ctx)
    target = resolve_endpoint(found.env, found.home, project)
    return Session(found, Client(target.url, target.token, target.project, sleep=found.sleep, via=found.via))


def all_users(client: Client) -> list[contract.User]:
    """Those that the caller may see."""
    found = calls.users_list(client, {})
    return found if isinstance(found, list) else found["users"]


def watch(session: Session, show: Callable[[], None], wanted: bool, *, json_too: bool = False) -> None:
    """Shows once, or repeatedly until Ctrl-C, which ends it quietly."""
    if not wanted:
        show()
        return
    if json_too:
        raise typer.BadParameter("--watch and --json contradict each other: a table that changes, and one document.")
    try:
        while True:
            if session.terminal.watched:
                session.terminal.write(CLEAR)
            show()
            session.terminal.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def names_path(home: Path) -> Path:
    return home / ".dstack" / "cache" / "names.json"


def read_names(path: Path) -> dict[str, list[str]]:
    """The cached names; none if there is no cache or it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def completer(kind: str) -> Callable[[str], list[str]]:
    """Completes a parameter with the cached names of `kind`, without a request to the server."""

    def complete(incomplete: str) -> list[str]:
        names = read_names(names_path(Path.home())).get(kind, [])
        return [name for name in names if is_word(name) and name.startswith(incomplete)]

    return complete

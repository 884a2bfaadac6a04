"""The two kinds of stage: all of it in this process on the world's time, and all of it real."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chalicelib.domain.instants import HOUR, SECOND
from cli.connection.config import set_default_project
from cli.screen.terminal import Terminal
from tests.harness import forks
from tests.harness.server import PATIENCE, ROOT, Server, until
from tests.world import wires
from tests.world.cli import Dstack
from tests.world.hosts import TRIP
from tests.world.site import ADMIN, Site

MAIN = "main"  # the project that a server begins with
PROJECT = {"is_public": False}
CHECK_EVERY = SECOND // 4


@dataclass
class Virtual:
    """The command line's own entry, and a site. Waiting costs no time: the world's passes."""

    site: Site
    home: Path
    project: str
    exported: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.project != MAIN:
            self.site.call("/api/projects/create", {"project_name": self.project, **PROJECT})
        set_default_project(self.home / ".dstack" / "config.yml", self.project, self.site.url, ADMIN)

    @property
    def environment(self) -> dict[str, str]:
        return self.exported

    def dstack(self, args: list[str]) -> tuple[str, int]:
        return Dstack(self._terminal()).together(*args)

    def streams(self, args: list[str]) -> tuple[str, str]:
        ended = Dstack(self._terminal())(*args)
        return ended.out, ended.err

    def _terminal(self) -> Terminal:
        time = self.site.time
        return Terminal(
            env=self.exported,
            home=self.home,
            cwd=self.home,
            now=time.seconds,
            sleep=time.pass_,
            watched=False,
            via=wires.to(self.site.url, self._request),
        )

    def _request(self, *args: Any) -> tuple[int, bytes]:
        self.site.time.pass_(TRIP)
        return self.site.request(*args)

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        return self.site.call(f"/api/project/{self.project}/{path}", body)

    def events(self) -> list[dict[str, Any]]:
        return list(self.site.call("/api/events/list", {}))

    def behave(self, script: str) -> None:
        self.site.behave(script)

    def until(self, what: str, check: Callable[[], bool]) -> None:
        time = self.site.time
        end = time.at + HOUR
        while not check():
            written, same = self.site.written(), True
            while same:  # what nobody wrote anything about isn't asked again
                assert time.at < end, f"waited an hour of the world's time in vain for {what}"
                time.run(max(time.at + CHECK_EVERY, time.next_at(end)))
                same = written is not None and written == self.site.written()


@dataclass
class Real:
    """The commands as processes, a server in another, its agents and what they run in yet others."""

    server: Server
    home: Path
    project: str
    exported: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (sys.executable, "-m", "cli.main")

    def __post_init__(self) -> None:
        if self.project != MAIN:
            self.server.call("/api/projects/create", {"project_name": self.project, **PROJECT})
        self.log_in()

    def log_in(self) -> None:
        set_default_project(self.home / ".dstack" / "config.yml", self.project, self.server.url, self.server.token)

    @property
    def environment(self) -> dict[str, str]:
        found = {} if self.server.command else {"PYTHONPATH": str(ROOT)}  # what is installed finds itself
        return {**self.server.environment(), "HOME": str(self.home), **found, **self.exported}

    def dstack(self, args: list[str]) -> tuple[str, int]:
        if self.server.forked:
            place = self.server.place(self.server.command)
            status, shown = forks.run(args, self.home, self._seen, place, seconds=int(2 * PATIENCE))
            return shown, status
        done = self._run(args, subprocess.STDOUT)
        return done.stdout, done.returncode

    def streams(self, args: list[str]) -> tuple[str, str]:
        if self.server.forked:
            place = self.server.place(self.server.command)
            return forks.streams(args, self.home, self._seen, place, seconds=int(2 * PATIENCE))[1:]
        done = self._run(args, subprocess.PIPE)
        return done.stdout, done.stderr

    @property
    def _seen(self) -> dict[str, str]:
        return {**self.environment, "COLUMNS": "120"}

    def _run(self, args: list[str], errors: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.server.prefix, *self.command, *args],
            cwd=self.home,
            env=self._seen,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        return self.server.call(f"/api/project/{self.project}/{path}", body)

    def events(self) -> list[dict[str, Any]]:
        return list(self.server.call("/api/events/list", {}))

    def behave(self, script: str) -> None:
        """The cloud looks at the file at each call."""
        draft = self.server.data / "fake-cloud" / "script.draft"
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(script)
        draft.replace(draft.with_suffix(".json"))

    def until(self, what: str, check: Callable[[], bool]) -> None:
        until(what, check, every=0.2)

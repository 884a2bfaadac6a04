"""The attachment to a job: `ssh RUN` works and its ports are forwarded until it ends; a lost connection is restored.

The loop that follows the run calls `tend` after each poll. The routes to the job are tried in turn; when a connection
is lost, all are tried again, with growing pauses.
"""

from __future__ import annotations

import contextlib
import hashlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import DstackError, Refused
from cli.connection import calls
from cli.connection.server_values import private_key, public_key
from cli.connection.session import Session
from cli.ssh import forwards
from cli.ssh.config import Attached, JobHops, SshFolder, include_in, replace_file
from cli.ssh.keys import read_key
from cli.ssh.routes import NoSshServer, NotKnownYet, alias_of, check_server, routes_to
from cli.ssh.tunnel import OpenSsh, SshTunnel
from cli.tables.runs import newest

if TYPE_CHECKING:
    from chalicelib import contract

WAITS = (0.0, 1.0, 2.0, 4.0, 8.0, 10.0)  # seconds before each attempt; the last one repeats
LASTED = 60.0  # seconds after which a lost connection is restored at once
TRIES = 4  # before the first attachment is given up
ANNOUNCED_WITHIN = 2.0  # seconds for which the log waits, so that the forwarded ports are printed first


@dataclass(frozen=True)
class AttachOptions:
    """The options of the command line for attaching."""

    identity: str | None = None  # --ssh-identity
    address: str = "localhost"  # --host
    maps: tuple[str, ...] = ()  # -p
    explicit: bool = False  # the command is for attaching, not just for the run


class JobAttachment:
    """An attachment to one job of a run and its current submission. `needed`: the command is useless without it."""

    def __init__(self, session: Session, name: str, wishes: AttachOptions, *, needed: bool) -> None:
        self.session, self.name, self.wishes, self.needed = session, name, wishes, needed
        self.terminal = session.terminal
        self.ssh: OpenSsh = session.terminal.ssh or OpenSsh(session.terminal.env)
        self.ssh_folder = SshFolder(session.terminal.home / ".dstack" / "ssh")
        self.tunnel: SshTunnel | None = None
        self._submission = ""
        self._given_up = False
        self._attached: Attached | None = None
        self._forwards: list[forwards.Forward] = []
        self._routes: list[JobHops] = []
        self._identity: Path | None = None
        self._reasons: list[str] = []
        self._tries = 0
        self._next_try = 0.0
        self._announced = False  # whether the user knows that it is up
        self._up_at = 0.0
        self._was_up = False
        self._announced_by = 0.0

    def fileno(self) -> int:
        """A file descriptor, readable when `tend` has something to do; -1 if only time matters."""
        return self.tunnel.fileno() if self.tunnel else -1

    def tend(self, run: contract.Run, job: contract.Job | None) -> None:
        """Makes and restores the connection, after a poll of the run. Raises if the attachment is needed and
        impossible."""
        latest = newest(job) if job else None
        if latest is None or latest["status"] != "running" or not job:
            self._let_go()
            return
        if latest["id"] != self._submission:
            self._let_go()
            self._submission, self._given_up, self._was_up, self._tries = latest["id"], False, False, 0
            self._announced_by = self.terminal.now() + ANNOUNCED_WITHIN if self._is_announced(run, job) else 0.0
        if self._given_up:
            return
        try:
            self._tend(run, job, latest)
        except NotKnownYet:
            return  # its machine will report
        except (DstackError, OSError) as problem:
            error = problem if isinstance(problem, DstackError) else _unkept(problem)
            self._let_go()
            self._submission, self._given_up = latest["id"], True
            if self.needed:
                raise error from None
            if not isinstance(error, NoSshServer) or self.wishes.explicit or _counted_on(run, job):
                self.terminal.warn(f"Not attached: {error.message}")

    def is_awaited(self) -> bool:
        """Will the attachment be announced in a moment?"""
        return not (self._was_up or self._given_up) and self.terminal.now() < self._announced_by

    @property
    def forwarded(self) -> dict[int, int] | None:
        """The local port of each of the job's; None unless the connection is up."""
        if self.tunnel is None or not self.tunnel.up:
            return None
        return {one.remote: one.local for one in self._forwards}

    def close(self) -> None:
        self._let_go()

    def _tend(self, run: contract.Run, job: contract.Job, latest: contract.Submission) -> None:
        if self.tunnel and not self.tunnel.poll():
            self._failed(self.tunnel)
        if self.tunnel is None and self.terminal.now() >= self._next_try:
            self._start(run, job, latest)
        if self.tunnel and self.tunnel.up and not self._announced:
            self._announced = self._was_up = True
            self._up_at, self._reasons = self.terminal.now(), []
            self._announce(run, job)

    def _start(self, run: contract.Run, job: contract.Job, latest: contract.Submission) -> None:
        alias = alias_of(self.name, job["job_spec"])
        if self._attached is None:
            check_server(latest)
            self._identity = self._key(run)
            self._attached = self.ssh_folder.attach(alias, run["id"])
            wanted = forwards.overridden(forwards.of_job(job["job_spec"]), self.wishes.maps)
            self._forwards = forwards.chosen(wanted, self.wishes.address, forwards.is_free)
        if not self._routes:
            assert self._identity is not None, "a key was found"
            self._routes = routes_to(latest, alias, self._identity, self._proxy(), self.ssh)
        route = self._routes[0]
        endpoint = self._endpoint(job) if route.proxy else None
        self.ssh_folder.write(self._attached, route, endpoint, self.ssh.options())
        self._announced = False
        self.tunnel = self.ssh.start(self._attached.config, alias, self._forwards)
        self.ssh_folder.note(self._attached, self.tunnel.pid)

    def _failed(self, tunnel: SshTunnel) -> None:
        """Handles a tunnel whose process has ended: the next route is tried, or all again."""
        reason = tunnel.failure()
        tunnel.end()
        self.tunnel = None
        if tunnel.up:
            self.terminal.warn(f"The connection to {self.name} was lost ({reason}); attaching again.")
            if self.terminal.now() >= self._up_at + LASTED:
                self._tries = 0
            self._next_try = self.terminal.now() + WAITS[min(self._tries, len(WAITS) - 1)]
            self._tries += 1
            self._routes = []
            return
        if "Address already in use" in reason:
            taken = next((one for one in self._forwards if f":{one.local}:" in reason), None)
            if taken and not self._was_up:
                raise forwards.busy(taken.local, taken.remote)
        route = self._routes.pop(0)
        self._reasons.append(f"{_route_text(route)}: {reason}")
        if self._routes:
            return
        self._tries += 1
        if self._tries >= TRIES and not self._was_up:
            reasons = "".join(f"\n  {reason}" for reason in dict.fromkeys(self._reasons))
            raise Refused(
                f"Nothing reaches the job of {self.name}:{reasons}", hint=f"Its log: `dstack logs {self.name}`."
            )
        self._next_try = self.terminal.now() + WAITS[min(self._tries, len(WAITS) - 1)]

    def _let_go(self) -> None:
        if self.tunnel:
            self.tunnel.end()
        if self._attached:
            self.ssh_folder.detach(self._attached)
        self.tunnel, self._attached, self._routes, self._next_try, self._reasons = None, None, [], 0.0, []

    def _announce(self, run: contract.Run, job: contract.Job) -> None:
        """Announces the attachment on a terminal, or if it was requested: in a script's output it would be amid the
        log."""
        command = self._command()
        if not self._is_announced(run, job):
            return
        spec = job["job_spec"]
        where = f"replica {spec.get('replica_num', 0)}, job {spec.get('job_num', 0)}"
        self.terminal.warn(f"Attached to {self.name} ({where}), {_route_text(self._routes[0])}.")
        for one in self._forwards:
            self.terminal.warn(f"  {one.address}:{one.local} → port {one.remote} of the job")
        self.terminal.warn(f"  {command}")
        connection = job.get("job_connection_info")
        link = connection and connection["attached_ide_url"]
        if self.needed and link:  # otherwise the log contains it
            self.terminal.warn(f"  {link}")

    def _is_announced(self, run: contract.Run, job: contract.Job) -> bool:
        return self.terminal.watched or self.needed or self.wishes.explicit or _counted_on(run, job)

    def _command(self) -> str:
        """The command to log in with, after including the run in the user's SSH configuration."""
        assert self._attached is not None, "it is attached"
        alias = self._routes[0].alias
        if not self._attached.named:  # a run of the same name in another project is attached
            return f"ssh -F {self._attached.config} {alias}"
        try:
            include_in(self.terminal.home / ".ssh" / "config", self.ssh_folder.folder.parent)
        except OSError as error:
            self.terminal.warn(
                f"~/.ssh/config can't be changed ({error.strerror}), so `ssh {alias}` won't work as it is."
            )
            return f"ssh -F {self._attached.config} {alias}"
        return f"ssh {alias}"

    def _key(self, run: contract.Run) -> Path:
        """The private key that the job accepts: that of --ssh-identity, else the user's from the server."""
        named = self.wishes.identity
        if named is not None:
            read_key(named, self.terminal.cwd, self.terminal.home, named_by="--ssh-identity", as_it_is=True)
            return self.terminal.home / named[2:] if named.startswith("~/") else self.terminal.cwd / named
        user = calls.users_get_my_user(self.session.client)
        if not user.get("ssh_private_key"):
            raise Refused(
                "The server didn't send your SSH key.",
                hint="Name one with --ssh-identity. Who calls with an access token gets none.",
            )
        private, public = private_key(user["ssh_private_key"]), public_key(user["ssh_public_key"])
        known = public_key(run["run_spec"].get("ssh_key_pub") or public)
        if known.split()[:2] != public.split()[:2]:
            whose = "yours" if run.get("user") == user.get("username") else f"{run.get('user')}'s"
            raise Refused(
                f"{self.name} was submitted with another key of {whose}, and only that one opens it.",
                hint="Name its file with --ssh-identity.",
            )
        name = hashlib.sha1(self.session.client.token.encode()).hexdigest()[:8]  # noqa: S324 - as other clients name it
        self.ssh_folder.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self.ssh_folder.folder / name, private)
        replace_file(self.ssh_folder.folder / f"{name}.pub", public)
        return self.ssh_folder.folder / name

    def _proxy(self) -> tuple[str, ...]:
        assert self._attached is not None, "its folder is there"
        # -P: a folder called `cli` in the working folder must not be imported.
        return (sys.executable, "-P", "-m", f"{__package__}.proxy", str(self._attached.folder / "endpoint.json"))

    def _endpoint(self, job: contract.Job) -> dict[str, object]:
        """The endpoint for `cli.ssh.proxy`, which SSH may start from another shell with another environment."""
        client, spec = self.session.client, job["job_spec"]
        where = {"replica": spec["replica_num"], "job": spec["job_num"]}
        return {"url": client.url, "token": client.token, "project": client.project, "run": self.name, **where}


def _unkept(problem: OSError) -> Refused:
    where = f"{problem.filename}: " if problem.filename else ""
    return Refused(
        f"{where}{problem.strerror or problem}.", hint="Keys and SSH's configuration are kept in ~/.dstack/ssh."
    )


def _counted_on(run: contract.Run, job: contract.Job) -> bool:
    """Does somebody who follows the run expect a connection?"""
    return bool(job["job_spec"].get("app_specs")) or run["run_spec"]["configuration"].get("type") == "dev-environment"


def _route_text(route: JobHops) -> str:
    if route.proxy:
        return "through the server"
    return "over its head node" if len(route.hops) > 1 else "directly"


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Lets the process clean up when a signal ends it."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

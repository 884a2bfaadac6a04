"""What each step of a host's workflows does on the host. Every step reads the keys from the fleet's spec again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from chalicelib.domain import keys
from chalicelib.domain.contacts import Contact
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.workflows import Workflow
from chalicelib.engine.bootstrap import bootstrap_token
from chalicelib.engine.ports import Clock
from chalicelib.errors import Bug, Conflict, NotYet, Transient, Unfit
from chalicelib.hosts import install
from chalicelib.hosts.connection import Connection, Login, Ran
from chalicelib.hosts.look import SCRIPT, Report, lacks, report
from chalicelib.store import nouns
from chalicelib.store.port import Delete, Store

QUIET = 15_000_000  # microseconds without a report after which the end of the agent's log is shown


class Logins(Protocol):
    """Whoever opens connections."""

    def connect(self, login: Login) -> AbstractContextManager[Connection]: ...


@dataclass(frozen=True)
class HostSteps:
    """Performs `add_host` and `remove_host`."""

    store: Store
    clock: Clock
    logins: Logins
    login_of: Callable[[Instance], Login]  # with the private keys, without pins
    install_id: str
    install_key: bytes
    server_url: str
    program: Callable[[], bytes]

    def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
        instance = self._instance(workflow)
        acts: Mapping[str, Callable[[Instance, Workflow], Mapping[str, str] | None]] = {
            "look": self._look,
            "install": self._install,
            "start": self._start,
            "report": self._report,
            "stop": self._stop,
            "clear": self._clear,
        }
        return acts[step](instance, workflow)

    def undo(self, step: str, workflow: Workflow) -> None:
        instance = self._instance(workflow)
        self._stop(instance, workflow)
        if step == "install":
            self._clear(instance, workflow)

    # --- adding ------------------------------------------------------------------------------------------------------

    def _look(self, instance: Instance, workflow: Workflow) -> Mapping[str, str]:
        with self._at(instance) as at:
            missing = lacks(at.seen, at.login.user, self._owner(instance))
            if missing:
                raise Unfit("; ".join(map(str, missing)))
            reached = at.run(install.reach(self.server_url), timeout=30.0).status == 0
            if at.contact.tunnel == reached:
                self.store.commit([nouns.put(at.contact.with_(tunnel=not reached))])  # a Conflict: retried
            return {"os": at.seen.os[:100], "arch": at.seen.arch}

    def _install(self, instance: Instance, workflow: Workflow) -> None:
        token = bootstrap_token(self.install_key, instance.id, instance.epoch)
        with self._at(instance) as at:
            # With a tunnel, the agent reads the address from a file that the tunnel writes.
            unit = install.unit("" if at.contact.tunnel else self.server_url, instance.id)
            at.must(install.claim(self._owner(instance)))
            at.connection.put(install.PROGRAM, self.program(), 0o700, sudo=at.seen.as_root)
            at.connection.put(install.TOKEN, token.encode(), 0o600, sudo=at.seen.as_root)
            at.connection.put(install.UNIT_FILE, unit.encode(), 0o644, sudo=at.seen.as_root)

    def _start(self, instance: Instance, workflow: Workflow) -> None:
        with self._at(instance) as at:
            at.must(install.START)

    def _report(self, instance: Instance, workflow: Workflow) -> None:
        heard = nouns.find(self.store, Presence, keys.presence(instance.id))
        if heard is not None and heard.facts is not None:
            return
        if self.clock.now() < workflow.step_at + QUIET:
            raise NotYet("its agent hasn't reported yet")
        with self._at(instance) as at:
            said = at.run(install.LOG_END).out.strip()
        raise NotYet(f"its agent hasn't reported; its log ends with: {said[:300] or 'nothing'}")

    # --- removing, and undoing ---------------------------------------------------------------------------------------

    def _stop(self, instance: Instance, workflow: Workflow) -> None:
        with self._at(instance) as at:
            if at.seen.owner in ("", self._owner(instance)):
                at.must(install.STOP)

    def _clear(self, instance: Instance, workflow: Workflow) -> None:
        with self._at(instance) as at:
            at.must(install.clear(self._owner(instance)), timeout=150.0)
            self.store.commit([Delete(keys.contact(instance.id), expect=at.contact.version)])

    # --- logging in --------------------------------------------------------------------------------------------------

    def _instance(self, workflow: Workflow) -> Instance:
        found = nouns.find(self.store, Instance, keys.instance(workflow.subject.partition("/")[2]))
        if found is None:
            raise Bug(f"{workflow.subject} has a workflow but doesn't exist")
        return found

    def _owner(self, instance: Instance) -> str:
        return f"{self.install_id}/{instance.id}"

    @contextmanager
    def _at(self, instance: Instance) -> Iterator[_At]:
        """Log in and inspect the host. First contact pins the keys of all hosts on the way."""
        contact = nouns.find(self.store, Contact, keys.contact(instance.id))
        login = self.login_of(instance)
        with self.logins.connect(login if contact is None else login.expecting(contact.shown)) as connection:
            if contact is None:
                contact = self._first(instance, connection.shown)
            seen = report(connection.run(SCRIPT, timeout=30.0).out)
            if not seen.whole:
                raise Transient(f"{login}: inspecting the host was cut short")
            yield _At(login, connection, seen, contact)

    def _first(self, instance: Instance, shown: tuple[str, ...]) -> Contact:
        contact = Contact(instance_id=instance.id, shown=shown)
        try:
            self.store.commit([nouns.put(contact)])
        except Conflict:
            raise Transient("another attempt made first contact at the same time") from None
        return contact.with_(version=1)


@dataclass(frozen=True)
class _At:
    login: Login
    connection: Connection
    seen: Report
    contact: Contact

    def run(self, script: str, *, timeout: float = 60.0) -> Ran:
        """Run a script as root."""
        return self.connection.run(f"{self.seen.as_root} sh -c {shlex.quote(script)}".strip(), timeout=timeout)

    def must(self, script: str, *, timeout: float = 60.0) -> None:
        ran = self.run(script, timeout=timeout)
        if ran.status:
            raise Transient(f"{self.login}: {ran.words}")

"""The steps of a host's workflows, performed on the host. Every step reads the keys from the fleet's spec again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from chalicelib.domain import keys
from chalicelib.domain.contacts import Contact, HeadRelay
from chalicelib.domain.ids import server_mark
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import SECOND
from chalicelib.domain.workflows import Workflow
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.ports import Clock
from chalicelib.errors import Bug, Conflict, NotYet, Transient, Unfit
from chalicelib.hosts import install, reachability
from chalicelib.hosts.connection import File, HostConnection, HostLogin, HostLogins, Ran
from chalicelib.hosts.head_relays import HeadRelays
from chalicelib.hosts.inspection import SHORT, HostReport, Lack, inspection_script, lacks, owned_by_others, parse_report
from chalicelib.hosts.ownership import ended, held
from chalicelib.hosts.tunnels import loopback
from chalicelib.store import nouns
from chalicelib.store.port import Delete, Store

TUNNEL = "tunnel"  # in a workflow's state: the host can't reach the server
STARTED = "started"  # also in a workflow's state: the agent was started when it was installed
QUIET = 15_000_000  # microseconds without a report after which the end of the agent's log is shown


@dataclass(frozen=True)
class HostSteps:
    """Performs `add_host` and `remove_host`."""

    store: Store
    clock: Clock
    logins: HostLogins
    login_of: Callable[[Instance], HostLogin]  # with the private keys, without pins
    install_id: str
    install_key: bytes
    server_url: str
    program: Callable[[], bytes]
    carries_calls: bool = True  # agents that can't reach the server call through tunnels, else through head nodes
    tunnel_wanted: Callable[[], None] = lambda: None  # called when a host needs a new tunnel

    def do(self, step: str, workflow: Workflow) -> Mapping[str, str] | None:
        instance = self._instance(workflow)
        acts: Mapping[str, Callable[[Instance, Workflow], Mapping[str, str] | None]] = {
            "look": self._inspect,
            "install": self._install,
            "relay": self._relay,
            "start": self._start,
            "report": self._report,
            "stop": self._retire,
            "clear": self._clear,
        }
        return acts[step](instance, workflow)

    def undo(self, step: str, workflow: Workflow) -> None:
        instance = self._instance(workflow)
        if step == "relay":
            self._unrelay(instance)
            return
        self._stop(instance, workflow)
        if step == "install":
            self._clear(instance, workflow)

    # --- adding ------------------------------------------------------------------------------------------------------

    def _inspect(self, instance: Instance, workflow: Workflow) -> Mapping[str, str]:
        with self._at(instance, inspection_script(self.server_url, server_mark(self.install_id)), again=True) as at:
            now = self.clock.now() // SECOND
            report = replace(at.report, owner="") if self._ended(at) else at.report
            _fit(lacks(report, at.login.user, self._owner(instance), self._held(instance, at), now))
            reached = at.report.reaches
            relay = None if reached or self.carries_calls else self._relayed(instance, at)
            self._note(at.contact, relay=relay)
            found = {"os": at.report.os[:100], "arch": at.report.arch}
            if not reached and self.carries_calls:
                found[TUNNEL] = "yes"
            return found if relay is None else {**found, "relay": relay.address}

    def _held(self, instance: Instance, at: _At) -> Lack | None:
        return held(self.store, at.report.owner, self.install_id, instance.project_id, instance.fleet_id)

    def _ended(self, at: _At) -> bool:
        return ended(self.store, at.report.owner, self.install_id)

    def _note(self, contact: Contact, **changes: object) -> None:
        changed = contact.with_(**changes)
        if changed != contact:
            self.store.commit([nouns.put(changed)])  # a Conflict: retried

    def _relayed(self, instance: Instance, at: _At) -> HeadRelay:
        """The relay for it on its head node. Raises Unfit if there can't be one."""
        mend = "(to fix it: let it, through a proxy or NAT for example)"
        head = at.login.expecting(at.contact.shown).jump
        if head is None or instance.host is None:
            raise Unfit(f"it can't reach {self.server_url} {mend}")
        try:
            address = self._relays.place(head, at.report.login_address)
        except Unfit as problem:
            raise Unfit(f"it can't reach {self.server_url}; {problem} {mend}") from None
        return HeadRelay(address=address, spec_num=instance.host.spec_num)

    def _install(self, instance: Instance, workflow: Workflow) -> Mapping[str, str] | None:
        """Installs the agent and, unless a relay on its head node has to be set up first, starts it by the same
        command: each further command costs the host a process of sshd, of sudo and of a shell.

        An agent that needs a tunnel finds its address when it starts. The tunnel takes over this connection, so it is
        requested once the connection is free; an existing tunnel has written its own address."""
        token, tunnel = bootstrap_token(self.install_key, instance.id, instance.epoch), TUNNEL in workflow.state
        with self._at(instance, again=True) as at:
            if self._ended(at):
                at.must(install.evict(at.report.owner), timeout=120.0)
            else:
                _fit(tuple(owned_by_others(at.report, self._owner(instance), self._held(instance, at))))
            # With a tunnel, the agent reads the address from a file: a port that the host chooses.
            unit = install.unit("" if tunnel else self.server_url, instance.id)
            start = "" if at.contact.relay is not None else install.START
            if tunnel and not at.contact.tunnel:
                start = install.follow(self._owner(instance), loopback(at.connection.listen())) + start
            at.connection.put(
                File(install.PROGRAM, self.program(), 0o600),
                File(install.TOKEN, token.encode(), 0o600),
                File(install.UNIT_FILE, unit.encode(), 0o644),
                sudo=at.report.as_root,
                first=install.claim(self._owner(instance)),  # if it was claimed since, the next attempt names the owner
                then=start,
            )
            at.connection.report = replace(at.report, owner=self._owner(instance))
        self._note(at.contact, tunnel=tunnel)
        if tunnel:
            self.tunnel_wanted()
        return {STARTED: "yes"} if start else None

    def _relay(self, instance: Instance, workflow: Workflow) -> None:
        with self._at(instance, again=True) as at:
            relay = at.contact.relay
            if relay is None:
                raise Bug(f"{instance.name} has no head node that could relay its calls")
            self._relays.set_up(self._head(instance, at.contact, relay), relay.address, instance.id)
            ran = at.run(reachability.reach(self.server_url, server_mark(self.install_id), relay.address), timeout=30.0)
            if ran.status:
                raise Transient(
                    f"it can't reach {self.server_url} through its head node at {relay.address} ({ran.last_line}); "
                    "to fix it, let the head node's firewall accept that"
                )
            at.connection.put(File(install.VIA, relay.address.encode(), 0o600), sudo=at.report.as_root)

    def _start(self, instance: Instance, workflow: Workflow) -> None:
        if STARTED not in workflow.state:
            with self._at(instance) as at:
                at.must(install.START)

    def _report(self, instance: Instance, workflow: Workflow) -> None:
        presence = nouns.find(self.store, Presence, keys.presence(instance.id))
        if presence is not None and presence.facts is not None:
            return
        if self.clock.now() < workflow.step_at + QUIET:
            raise NotYet("its agent hasn't reported yet")
        with self._at(instance) as at:
            log_end = at.run(install.LOG_END).out.strip()
        raise NotYet(f"its agent hasn't reported; its log ends with: {log_end[:300] or 'nothing'}")

    # --- removing, and undoing ---------------------------------------------------------------------------------------

    def _retire(self, instance: Instance, workflow: Workflow) -> None:
        """Starts with the head node, which may be reachable when the host isn't any more."""
        self._unrelay(instance)
        self._stop(instance, workflow)

    def _stop(self, instance: Instance, workflow: Workflow) -> None:
        with self._at(instance, again=True) as at:
            at.must(install.stop(self._owner(instance)))

    def _clear(self, instance: Instance, workflow: Workflow) -> None:
        with self._at(instance) as at:
            at.must(install.clear(self._owner(instance)), timeout=150.0)
            self.store.commit([Delete(keys.contact(instance.id), expect=at.contact.version)])

    # --- its head node -----------------------------------------------------------------------------------------------

    @property
    def _relays(self) -> HeadRelays:
        return HeadRelays(self.logins, self.install_id, self.server_url)

    def _unrelay(self, instance: Instance) -> None:
        contact = nouns.find(self.store, Contact, keys.contact(instance.id))
        if contact is not None and contact.relay is not None:
            head = self._head(instance, contact, contact.relay)
            self._relays.give_up(head, contact.relay.address, instance.id)

    def _head(self, instance: Instance, contact: Contact, relay: HeadRelay) -> HostLogin:
        """The head node with the relay, even if the fleet has another one now."""
        assert instance.host is not None
        host = instance.host.with_(spec_num=relay.spec_num)
        then, now = (self.login_of(one).expecting(contact.shown).jump for one in (instance.with_(host=host), instance))
        if then is None:
            raise Bug(f"{instance.name} had no head node in spec number {relay.spec_num}")
        same = now is not None and (now.hostname, now.port) == (then.hostname, then.port)
        return now if now is not None and same else then

    # --- logging in --------------------------------------------------------------------------------------------------

    def _instance(self, workflow: Workflow) -> Instance:
        found = nouns.find(self.store, Instance, keys.instance(workflow.subject.partition("/")[2]))
        if found is None:
            raise Bug(f"{workflow.subject} has a workflow but doesn't exist")
        return found

    def _owner(self, instance: Instance) -> str:
        return f"{self.install_id}/{instance.id}"

    @contextmanager
    def _at(self, instance: Instance, script: str = SHORT, *, again: bool = False) -> Iterator[_At]:
        """Log in and inspect the host. The first contact pins the keys of the jump host and the host. `again`: the next
        step follows at once."""
        contact = nouns.find(self.store, Contact, keys.contact(instance.id))
        login = self.login_of(instance)
        pinned = login if contact is None else login.expecting(contact.shown)
        with self.logins.connect(pinned, again=again) as connection:
            if contact is None:
                contact = self._first(instance, connection.shown)
            report = connection.report if script is SHORT else None
            report = connection.report = report or parse_report(connection.run(script, timeout=30.0).out)
            if not report.complete:
                raise Transient(f"{login}: inspecting the host was cut short")
            yield _At(login, connection, report, contact)

    def _first(self, instance: Instance, shown: tuple[str, ...]) -> Contact:
        contact = Contact(instance_id=instance.id, shown=shown)
        try:
            self.store.commit([nouns.put(contact)])
        except Conflict:
            raise Transient("another attempt made first contact at the same time") from None
        return contact.with_(version=1)


def _fit(missing: tuple[Lack, ...]) -> None:
    if missing:
        raise Unfit("; ".join(map(str, missing)))


@dataclass(frozen=True)
class _At:
    login: HostLogin
    connection: HostConnection
    report: HostReport
    contact: Contact

    def run(self, script: str, *, timeout: float = 60.0) -> Ran:
        """Run a script as root."""
        return self.connection.run(f"{self.report.as_root} sh -c {shlex.quote(script)}".strip(), timeout=timeout)

    def must(self, script: str, *, timeout: float = 60.0) -> None:
        ran = self.run(script, timeout=timeout)
        if ran.status:
            raise Transient(f"{self.login}: {ran.last_line}")

"""A control plane, assembled from its ports. The only place where use cases and engine are wired up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND
from chalicelib.domain.restorations import Met
from chalicelib.errors import BackendError, Moved, NotDeployed, OnlyLooks
from chalicelib.runtime.ports import Ports
from chalicelib.usecases.context import Joining, Plane

if TYPE_CHECKING:
    from chalicelib.backends.accounts import Account
    from chalicelib.catalog.offers import StoredCatalog
    from chalicelib.domain.fences import Fence
    from chalicelib.domain.instances import Instance
    from chalicelib.domain.instants import Micros
    from chalicelib.domain.market_answers import MarketAnswer
    from chalicelib.domain.offer_requests import OfferRequest
    from chalicelib.engine.erase_unused import Erased, Eraser
    from chalicelib.engine.execute import Executor
    from chalicelib.engine.executions import StartCalls, WorkflowCalls
    from chalicelib.engine.load import Loader
    from chalicelib.engine.ports import ConfigurationCheck, Performer
    from chalicelib.engine.reconcile import Pass, Reconciler
    from chalicelib.engine.run_traces import RunTraces
    from chalicelib.engine.sweep import Swept
    from chalicelib.hosts.connection import HostLogin
    from chalicelib.registries.client import Registries


def install_id(key: bytes) -> str:
    """The id with which an installation marks everything that it creates."""
    return derive(key.hex(), "install")


class Root:
    """Parts are created on first use: a function that serves the API never loads the engine."""

    _decides = False  # it isn't known yet whether it does
    _arrived: Micros = 0  # when a migration brought it here; what happened before was announced elsewhere

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.install_id = ports.given_install_id or install_id(ports.install_key)

    @cached_property
    def plane(self) -> Plane:
        ports = self.ports
        return Plane(
            **ports.shared(),
            catalog=self.catalog,
            install_id=self.install_id,
            hosts=ports.logins is not None,
            joining=self._joining,
            people_url=ports.api_url or ports.server_url,
            announces=ports.bus is not None,
        )

    def fence(self) -> Fence | None:
        """Why this control plane doesn't decide; None if it does. Functions ask this, each process until it decides:
        whoever moves a control plane away replaces all processes, and waits for the last one (`migration/stage.py`).
        Raises DataTooNew for functions of an earlier release than that of the records."""
        if not self._decides:
            from chalicelib.store.fences import fence_of
            from chalicelib.store.record_form import check_form

            check_form(self.ports.store, "Deploy the newer version again: docs/operate/upgrade.md has the way back.")
            found = fence_of(self.ports.store)
            if found is not None:
                self._arrived = found.arrived
                if not found.decides:
                    return found
            self._decides = True
        return None

    def check_fence(self) -> None:
        """Raises Moved if this control plane doesn't decide."""
        if found := self.fence():
            raise Moved(found.problem, hint=found.hint)

    @property
    def _joining(self) -> Joining:
        from chalicelib.hosts.join_script import JoinScript
        from chalicelib.usecases.agents.downloads import served

        ports = self.ports
        program = (lambda: self._program) if ports.publishes else partial(served, ports.blobs)
        return JoinScript(ports.store, ports.clock, self.install_id, ports.server_url, program)

    @cached_property
    def catalog(self) -> StoredCatalog:
        from chalicelib.catalog.offers import StoredCatalog

        return StoredCatalog(self.ports.blobs, self.ports.clock, self.ports.backends)

    @cached_property
    def reconciler(self) -> Reconciler:
        from chalicelib.engine.reconcile import Reconciler

        ports = self.ports
        return Reconciler(
            ports.store,
            ports.clock,
            wake=ports.wake,
            notify_agents=ports.notify_agents,
            effects=ports.effects,
            catalog=self.catalog,
            backends=ports.backends,
            load=self._load,
        )

    @cached_property
    def executor(self) -> Executor:
        from chalicelib.engine.effects.context import EffectContext
        from chalicelib.engine.execute import Executor

        ports = self.ports
        acting = EffectContext(
            ports.store,
            ports.clock,
            ports.backends,
            self.install_id,
            ports.install_key,
            ports.server_url,
            lambda: self._program,
            self.carrier,
            self._registries.command,
            self._performers,
            executions=ports.workflows,
            seal=ports.seal,
            authority=ports.authority,
            ask_market=self.catalog.ask,
            wake=ports.wake,
        )
        return Executor(acting, self._load, wake=ports.wake, notify_agents=ports.notify_agents, counters=ports.counters)

    @cached_property
    def workflow_calls(self) -> WorkflowCalls:
        from chalicelib.engine.executions import WorkflowCalls

        return WorkflowCalls(self.executor)

    @cached_property
    def start_calls(self) -> StartCalls:
        from chalicelib.engine.executions import StartCalls

        return StartCalls(self.executor, lambda units: self.reconciler.run(units, kinds=()))

    def check_acts(self) -> None:
        """Raises OnlyLooks until a restored control plane goes on."""
        if self.ports.hold.looking:
            raise OnlyLooks("This server was restored from a backup, and only looks until it goes on")

    def run_pass(self, units: Iterable[str] = (), kinds: Sequence[str] | None = None) -> Pass:
        """A pass over these units and those that are due; one over nothing while a restored control plane only
        looks."""
        from chalicelib.engine.reconcile import Pass

        return Pass() if self.ports.hold.looking else self.reconciler.run(units, kinds)

    def login_of(self, instance: Instance) -> HostLogin:
        from chalicelib.hosts.logins import login_of

        return login_of(self.plane.read.fleet_body, self.ports.seal, instance)

    def tunnel_wanted(self) -> None:
        """Called when a host needs a new tunnel, which the store shows as well."""

    @cached_property
    def _performers(self) -> Mapping[str, Performer]:
        from chalicelib.agent.program.build import build
        from chalicelib.hosts.host_steps import HostSteps
        from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST

        ports = self.ports
        if ports.logins is None:
            return {}  # without logins there are no hosts: SSH fleets are refused
        hosts = HostSteps(
            ports.store,
            ports.clock,
            ports.logins,
            self.login_of,
            self.install_id,
            ports.install_key,
            ports.server_url,
            build,
            carries_calls=ports.tunnels,
            tunnel_wanted=self.tunnel_wanted,
        )
        return {ADD_HOST.name: hosts, REMOVE_HOST.name: hosts}

    @cached_property
    def _program(self) -> str:
        """The digest of this release's agent, once it is published. Called only where machines get an agent."""
        from chalicelib.agent.program.build import build
        from chalicelib.usecases.agents.downloads import publish

        return publish(self.ports.blobs, build())

    @cached_property
    def _registries(self) -> Registries:
        from chalicelib.registries.addresses import public_sender
        from chalicelib.registries.client import LARGEST, Registries

        listed = self.ports.registries
        return Registries(public_sender(LARGEST, listed or ()), listing="" if listed is None else "server/config.yml")

    def carrier(self, architecture: str) -> str:
        """The digest of the carrier for new containers on x86 or arm, which `make carriers` made; empty if it
        didn't."""
        from chalicelib.usecases.agents.carriers import newest

        return newest(self.ports.blobs, architecture)[1]

    @cached_property
    def _load(self) -> Loader:
        from chalicelib.engine.load import Loader

        driven = self.ports.workflows is not None
        return Loader(self.plane.read, self.catalog, self.ports.backends, executions=driven)

    @cached_property
    def eraser(self) -> Eraser:
        from chalicelib.engine.erase_unused import Eraser

        ports = self.ports
        return Eraser(ports.store, ports.blobs, ports.logs, ports.clock, ports.retention)

    def automate(self, order: Mapping[str, Any]) -> dict[str, str]:
        """Carry out the order of a rule. Returns the result."""
        from chalicelib.configuration.reading import read
        from chalicelib.domain.specs.automation import AutomationOrder
        from chalicelib.usecases.runs.rule_actions import carry_out

        done = carry_out(self.plane, read(AutomationOrder, dict(order)))
        return {"refused": "its project is gone" if done is None else done.refused}

    def publish(self, records: Iterable[Mapping[str, Any]]) -> list[str]:
        """Publish the state changes in these records of the table's stream. Returns the record to repeat from, if
        any. What a migration copies here happened elsewhere, and was announced there."""
        from chalicelib.domain.fences import FenceState
        from chalicelib.engine.event_bus import Documents, publish

        if self.ports.bus is None:
            raise NotDeployed("This stage has no bus.", hint="Deploy it with ARGS='--set Bus=on'.")
        fence = self.fence()
        if fence is not None and fence.state is not FenceState.moved:
            return []
        since = max(self._arrived, self.ports.hold.as_of)
        return publish(Documents(self.ports.store), self.ports.bus, records, since)

    def report_dead_letters(self) -> int:
        """Report the events that Lambda gave up. Returns their number."""
        from chalicelib.engine.dead_letters import report

        return sum(report(self.ports.store, self.ports.clock, message) for message in self.ports.dead_letters())

    def erase(self) -> Erased:
        """Do one step of erasing unused data, of upgrading older records, and of keeping the books."""
        if self.ports.hold.looking:
            from chalicelib.engine.erase_unused import Erased

            return Erased()
        from chalicelib.engine.bookkeeping import keep_books
        from chalicelib.engine.record_upgrades import RecordUpgrader

        RecordUpgrader(self.ports.store, self.ports.seal, self.ports.clock).run()
        done = self.eraser.run()
        keep_books(self.plane.read, self.ports.clock)  # last: a first count may outlast the turn
        return done

    @cached_property
    def run_traces(self) -> RunTraces | None:
        """What makes the traces of runs and exports them; None if nobody collects any."""
        from chalicelib.engine.run_traces import RunTraces

        ports = self.ports
        return None if ports.spans is None else RunTraces(self.plane.read, ports.logs, ports.clock, ports.spans)

    def silent_units(self) -> list[str]:
        """The units affected by agents that failed to report in time."""
        from chalicelib.engine.silent_agents import silent_units

        return silent_units(self.ports.store, self.ports.clock)

    # --- work on accounts, where their providers' SDKs are ------------------------------------------------------------

    def sweep(self, account: str) -> Swept:
        """Release an account's resources that have our tag but no owner, and handle instances whose machines are
        gone. While a restored control plane only looks, they are noted."""
        from chalicelib.engine.sweep import Sweeper, Swept

        found = self.ports.backends.account(account)
        if found is None:
            return Swept()
        if self.ports.hold.looking:
            self._look(found)
            return Swept()
        return Sweeper(self.executor).run(found)

    def look(self) -> None:
        """Note what isn't as the records say at the providers, and change nothing."""
        for account in self.ports.backends.accounts():
            self._look(account)

    def _look(self, account: Account) -> None:
        from chalicelib.engine.sweep import Sweeper

        try:
            self.ports.hold.met(*Sweeper(self.executor).look(account))
        except BackendError as error:
            self.ports.hold.met(Met(kind="account", id=account.key, says=f"{account.key} couldn't be asked: {error}"))

    def refresh(self, account: str) -> bool:
        """Fetch an account's offers; plans read the stored copy. True: jobs still wait for its first offers."""
        head = self.catalog.refresh(account)
        return head is not None and head.awaited

    def offers_for(self, account: str, request: OfferRequest) -> MarketAnswer:
        """What a market answers now, for a plan."""
        from chalicelib.catalog.offers import answer_of
        from chalicelib.domain.market_answers import MarketAnswer

        found = self.ports.backends.account(account)
        if found is None:
            return MarketAnswer(self.ports.clock.now(), error="the backend isn't configured any more")
        return answer_of(found, request, self.ports.clock)

    def check(self, request: ConfigurationCheck) -> None:
        """Check a configuration. Raises the provider's error."""
        from chalicelib.runtime.accounts import check

        check(request, self.ports.seal, self.ports.providers, self.install_id)

    # --- scheduling that work, one request per account ----------------------------------------------------------------

    def sweep_accounts(self, at: Micros | None = None) -> list[str]:
        """Have every account swept. `at`: the schedule's turn, which is claimed once."""
        return self._each("sweep", self.ports.account_work.sweep, at)

    def refresh_accounts(self, at: Micros | None = None) -> list[str]:
        """Have every account's offers fetched, and delete what nobody uses any more."""
        self.catalog.forget_unused()
        return self._each("refresh", self.ports.account_work.refresh, at)

    def refresh_due(self, turn: Micros, at: Micros | None = None, longest: Micros | None = None) -> list[str]:
        """The same for those accounts whose offers don't hold until the next `turn`, or are as old as `longest`."""
        self.catalog.forget_unused()
        return self._each("refresh", self.ports.account_work.refresh, at, self.catalog.due(turn, longest))

    def _each(
        self, schedule: str, ask: Callable[[str], None], at: Micros | None, only: Sequence[str] | None = None
    ) -> list[str]:
        from chalicelib.engine.schedule_turns import claim_turn

        accounts = [a.key for a in self.ports.backends.accounts() if only is None or a.key in only]
        if not accounts or (at is not None and not claim_turn(self.ports.store, schedule, at)):
            return []  # without accounts, nothing is read or written
        first = (at or self.ports.clock.now()) // SECOND % len(accounts)  # rotates, so that none is always the last
        accounts = accounts[first:] + accounts[:first]
        for account in accounts:
            ask(account)
        return accounts

    def close(self) -> None:
        self.ports.backends.close()
        self.ports.store.close()

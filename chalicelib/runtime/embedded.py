"""The control plane on one machine: SQLite, files, one reconciler thread. Threads of one process do here what AWS does
for `lambda_.py`, so there is nothing to install or set up.

Everything durable is in the data folder, so a killed server continues where it was.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, ClassVar

from chalicelib.api.v1 import FLEETS, changes_in
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.instants import SECOND
from chalicelib.domain.keys import STATUS
from chalicelib.domain.services import SERVER
from chalicelib.domain.tenants import Permissions
from chalicelib.engine.counters import Counters
from chalicelib.engine.hold import RestoredHold
from chalicelib.engine.measures import Measures, measured_or_logged
from chalicelib.engine.ports import Clock
from chalicelib.errors import Moved, StorageFull
from chalicelib.runtime.asgi import Polls
from chalicelib.runtime.audit_log import AuditLogs, logs_of
from chalicelib.runtime.backup_keys import CHECK_EVERY, back_up_if_due
from chalicelib.runtime.carriers import CarrierMaker, Make
from chalicelib.runtime.clock import SystemClock, random_id, random_token
from chalicelib.runtime.connection_admission import doors_share, most_connections
from chalicelib.runtime.data_folder import secret_file, templates_in
from chalicelib.runtime.doors import GatewayNews, door_of, refresh_door
from chalicelib.runtime.effect_pools import EffectPools
from chalicelib.runtime.machine_watches import MachineWatches
from chalicelib.runtime.ports import Ports
from chalicelib.runtime.probes import Check, checks_of, problem
from chalicelib.runtime.provider_threads import ProviderThreads
from chalicelib.runtime.reconcile_loop import ReconcileLoop
from chalicelib.runtime.replica_relays import ReplicaRelays
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import ServerSettings
from chalicelib.runtime.shutdown_message import shutdown_lines
from chalicelib.runtime.streams import MOST, StreamBroker
from chalicelib.runtime.ticker import Ticker
from chalicelib.runtime.tracing import trace_ports
from chalicelib.serving.door import DoorSettings
from chalicelib.store.commit_journal import CommitJournal
from chalicelib.store.disk import used
from chalicelib.usecases.pace import EMBEDDED
from chalicelib.usecases.services.traffic import opened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chalicelib.backends.accounts import Account
    from chalicelib.backends.simulated.cloud import FakeCloud
    from chalicelib.backends.spi import MachineChange
    from chalicelib.engine.erase_unused import Erased
    from chalicelib.engine.sweep import Swept
    from chalicelib.hosts.tunnels import Tunnels
    from chalicelib.runtime.pair.tenure import Tenure
    from chalicelib.store.port import Change, Store
    from chalicelib.store.sqlite import SqliteStore
    from chalicelib.usecases.context import Providers

log = logging.getLogger(__name__)

PROGRAM_FILE = "agent.pyz"
_OF_FLEETS = ("fleet/", "instance/")  # the records of fleets and their machines
SWEEP_EVERY = 300.0  # seconds between sweeps for orphans
ERASE_EVERY = 600.0  # seconds between two steps of erasing unused data
REFRESH_EVERY = 600.0  # seconds between refreshes of offers that are valid for so long: each costs a call, but no money
HOLD_EVERY = 2.0  # seconds between a restored server's reads of the operator's word
LOOK_EVERY = 60.0  # seconds between its looks at what the providers list
LOGIN_IDLE = 10.0  # seconds that a login to a host stays open for the next step there
FIRST_OFFERS = 2.0  # seconds that a start waits for the first offers of a backend; slow ones come later
RENEW_EVERY = 0.5  # seconds between writes of deferred presences: less than the margin of their deadlines
MEASURE_EVERY = 60.0  # seconds between writes of what the server measures of itself
TRACE_EVERY = 2.0  # seconds between looks for runs whose traces are complete
RETRY_OFFERS = 5.0  # seconds until the offers of a backend that has never responded are fetched again


def _database(settings: ServerSettings, clock: Clock | None) -> SqliteStore:
    """Records expire by this clock; by the machine's, if there is none."""
    from chalicelib.store.sqlite import SqliteStore

    return SqliteStore(settings.data_dir / "plane.db", now=time if clock is None else lambda: clock.now() / SECOND)


def _tenured(store: SqliteStore, tenure: Tenure | None) -> Store:
    from chalicelib.runtime.pair.tenure import TenuredStore

    return store if tenure is None else TenuredStore(store, tenure.check)


class EmbeddedRoot(Root):
    """Created from its settings. Nothing runs before `start`; without it, the caller can do the threads' work."""

    _all_due = True  # the next refresh fetches all offers, whatever their age
    _tunnels: Tunnels | None = None

    tunnels: ClassVar[bool] = True  # it keeps connections to hosts open, which carry their agents' calls
    retry_offers = RETRY_OFFERS
    pace = EMBEDDED

    def __init__(
        self,
        settings: ServerSettings,
        config: ServerConfig,
        server_url: str,
        *,
        clock: Clock | None = None,
        tenure: Tenure | None = None,  # of a server of a pair: the time for which it decides
    ) -> None:
        from chalicelib.hosts.connection import SshLogins
        from chalicelib.runtime.accounts import StoredAccounts
        from chalicelib.runtime.sign_on import sign_on_ports
        from chalicelib.runtime.subscribers import Subscribers
        from chalicelib.store.announcing_store import AnnouncingStore
        from chalicelib.store.blobs import FileBlobs
        from chalicelib.store.deferred_writes import DeferredWrites
        from chalicelib.store.history import HistoryStore
        from chalicelib.store.log_files import FileLogs
        from chalicelib.store.seal import Sealer
        from chalicelib.usecases.agents.downloads import publish
        from chalicelib.usecases.operator.server_config import sealing_keys

        self._database, folder = _database(settings, clock), settings.data_dir
        clock = clock or SystemClock(after=self._database.newest_event())
        store = AnnouncingStore(HistoryStore(_tenured(self._database, tenure), settings.retention), self._committed)
        blobs, program = FileBlobs(folder / "blobs"), agent_program(folder)
        publish(blobs, program.read_bytes())
        self.tenure, self.polls, self.counters = tenure, Polls(), Counters()
        self.effects, self.accounts = EffectPools(), ProviderThreads(lambda: self)
        self.gateway_news = GatewayNews(self.polls.ring)
        seats = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # a stream takes up to four
        self.streams = StreamBroker(random_id, random_token, min(MOST, max(1, seats // 4)))
        self.relays = ReplicaRelays(self.streams, self.polls.ring, folder)
        self.door = door_of(lambda: self.plane, clock.now, self.relays, _door_settings(settings, server_url, seats))
        self.loop, known = ReconcileLoop(clock, store.next_due), _providers(settings)
        self.hold, self._backups = RestoredHold(store, clock), settings.backups
        seal = Sealer(*sealing_keys(config, secret_file(folder / "master.key")))
        clouds = self._clouds(settings, server_url, program)
        self.renewals, self.refreshes = DeferredWrites(store), Ticker(REFRESH_EVERY, self.keep_catalog, at_once=True)
        super().__init__(
            Ports(
                store=store,
                blobs=blobs,
                logs=FileLogs(folder / "logs"),
                seal=seal,
                install_key=secret_file(folder / "install.key"),
                backends=StoredAccounts(store, seal, clock, known, clouds, changed=self._account_changed),
                wake=self.loop.wake,
                effects=self.effects,
                account_work=self.accounts,
                notify_agents=self.polls.ring,
                pace=self.pace,
                server_url=server_url,
                clock=clock,
                random_id=random_id,
                random_token=random_token,
                measure=partial(used, folder),
                logins=SshLogins(keep_open=LOGIN_IDLE),
                tunnels=self.tunnels,
                limits=settings.limits,
                images=settings.images,
                registries=config.registries or (),
                permissions=_permissions(settings, config),
                providers=known,
                retention=settings.retention,
                streams=self.streams,
                rights=self._rights_changed,
                **self._facts(settings),
                counters=self.counters,
                renew=self.renewals.add,
                journal=self.journal,
                hold=self.hold,
                templates=partial(templates_in, folder / "templates"),
                authority=settings.authority.build(),
                **sign_on_ports(config, clock),
            )
        )
        self.audits = AuditLogs(logs_of(settings.audit_file, settings.audit, folder, self._database))
        self.subscribers = Subscribers(lambda: self.plane, self._database)

    def _facts(self, settings: ServerSettings) -> dict[str, Any]:
        """The ports that say how this server is, and those for whoever traces it."""
        epoch = None if self.tenure is None else self.tenure.epoch
        return {"problems": self.problems, "epoch": epoch, **trace_ports(settings.traces, settings.trace_headers)}

    def checks(self) -> Mapping[str, Check]:
        lease = None if self.tenure is None else self.tenure.why
        return checks_of(lambda: self.polls.closed, self.ports.store, self._database.folder, self._undecided, lease)

    def _undecided(self) -> str:
        return "" if self.hold.looking else self.loop.problem()

    def problems(self) -> Mapping[str, str]:
        return {name: problem(name, check) for name, check in self.checks().items()}

    @cached_property
    def _carriers(self) -> CarrierMaker:
        return CarrierMaker(self.ports.blobs, self.ports.clock, self.makes_carriers())

    def carrier(self, architecture: str) -> str:
        return self._carriers.digest(architecture)

    def makes_carriers(self) -> Make:
        from chalicelib.carrier.make import make

        return make

    def _clouds(self, settings: ServerSettings, server_url: str, program: Path) -> list[Account]:
        """The backends that no project needs to configure."""
        from chalicelib.backends.accounts import Account

        self._cloud = self.simulated(settings, server_url, program) if settings.fake_cloud else None
        return [Account.of(self._cloud)] if self._cloud is not None else []

    @staticmethod
    def simulated(settings: ServerSettings, server_url: str, program: Path) -> FakeCloud:
        """The simulated cloud. Its machines are processes of this computer; a test may give it others."""
        from chalicelib.backends.simulated.local import local_cloud

        folder = settings.data_dir / "fake-cloud"
        return local_cloud(folder, server_url, program, settings.agent_users, settings.fake_cloud_name)

    def start(self) -> None:
        self.accounts.start()
        self.refreshes.start()
        if self.catalog.awaited():
            self.refreshes.wait_first(FIRST_OFFERS)  # or the first plans would have no offers
        services = opened(self.plane, SERVER)  # before a pass decides with what the last process had under way
        self.door.changed(services, refresh=services)
        self.gateway_news.begin(self.plane)
        self.renewing.start()
        self.measuring.start()
        if self.run_traces is not None:
            self.tracing.start()
        self.audits.start()
        if self.backing_up is not None:
            self.backing_up.start()
        if self.hold.looking:
            self.holding.start()
            self.looks.start()
        else:
            self._act()

    def _act(self) -> None:
        """Begin what buys and ends."""
        execute = self.executor.execute
        self.effects.start(execute if self.tenure is None else self.tenure.guarded(execute))
        self.loop.start(self.counters.passes(self.reconciler.run))
        self.erasures.start()
        self.sweeps.start()
        self.watches.start()

    def _check_hold(self) -> None:
        """Begin to act once a restored server no longer only looks."""
        if not self.hold.refresh():
            self.holding.stop()
            self.looks.stop()
            log.warning("The restored server goes on: it buys and ends machines again")
            self._act()

    def carry(self, server: tuple[str, int]) -> None:
        """Start the tunnels to hosts that can't reach this server. `server`: the address at which it listens."""
        from chalicelib.hosts.tunnels import Tunnels

        assert self.ports.logins is not None, "this root logs in to hosts"
        self._tunnels = Tunnels(self.ports.store, self.ports.logins, self.login_of, self.install_id, server)
        self._tunnels.start()

    def tunnel_wanted(self) -> None:
        if self._tunnels is not None:
            self._tunnels.wake()

    def keep_catalog(self) -> None:
        """Refresh the offers that are due, or all at first and after a change; and soon again those of backends for
        whose first offers jobs wait."""
        listing = (each.facts for each in self.ports.backends.accounts() if not each.facts.live_offers)
        turn = min([REFRESH_EVERY, *(facts.offers_last / SECOND for facts in listing)])
        self.refreshes.every = turn
        if self._all_due:
            self._all_due = False
            self.refresh_accounts()
        else:
            self.refresh_due(int(turn * SECOND), longest=int(REFRESH_EVERY * SECOND))
        for _ in range(int(turn / RETRY_OFFERS)):
            self.accounts.settle(self.retry_offers)
            awaited = [account.key for account in self.catalog.awaited()]
            if not awaited or not self.refreshes.pause(self.retry_offers):
                break
            for account in awaited:
                if not self.accounts.busy(account):
                    self.accounts.refresh(account)

    def _account_changed(self, account: str) -> None:
        self._all_due = True
        self.refreshes.now()
        self.watches.accounts_changed()

    @cached_property
    def journal(self) -> CommitJournal:
        return CommitJournal(random_id())

    @cached_property
    def watches(self) -> MachineWatches:
        return MachineWatches(self.ports.backends.accounts, self._machines_changed, self.install_id)

    def _machines_changed(self, changes: Sequence[MachineChange]) -> None:
        from chalicelib.engine.machine_changes import effects_of

        for effect in effects_of(self.ports.store, self.ports.backends, changes, self.ports.clock.now()):
            self.effects.submit(effect)

    def _committed(self, changes: Sequence[Change]) -> None:
        refresh_door(self.door, changes)
        self.gateway_news.committed(changes)
        places = {change.key.pk for change in changes if change.key.sk == STATUS}
        places |= {changes_in(project) for project in self.journal.wrote(changes)}
        self.polls.changed([*places, FLEETS] if any(place.startswith(_OF_FLEETS) for place in places) else places)
        measured_or_logged(self._database, self.ports.clock, self.measures.took, changes)

    @cached_property
    def measures(self) -> Measures:
        return Measures(self.counters)

    @cached_property
    def measuring(self) -> Ticker:
        return Ticker(MEASURE_EVERY, self._write_measures)

    @cached_property
    def tracing(self) -> Ticker:
        return Ticker(TRACE_EVERY, lambda: self.run_traces and self.run_traces.run())

    def _write_measures(self) -> None:
        self.measures.write(self.ports.store, self.ports.clock.now())

    def _rights_changed(self) -> None:
        self.door.rights_changed()
        self.streams.check_rights()
        self.polls.ring_all()

    def _renew_all(self) -> None:
        """Write the deferred presences, so that after a restart no agent appears late that wasn't."""
        try:
            self.renewals.write()
            self._write_measures()
        except (StorageFull, Moved) as error:
            log.warning("the last reports of agents aren't stored: %s", error)

    @cached_property
    def erasures(self) -> Ticker:
        return Ticker(ERASE_EVERY, self.erase, at_once=True)

    @cached_property
    def renewing(self) -> Ticker:
        return Ticker(RENEW_EVERY, self.renewals.write)

    @cached_property
    def sweeps(self) -> Ticker:
        return Ticker(SWEEP_EVERY, self.sweep_accounts)

    @cached_property
    def backing_up(self) -> Ticker | None:
        if not self._backups.to:
            return None
        work = partial(back_up_if_due, self._database.folder, self._backups, self.ports.clock.now)
        return Ticker(CHECK_EVERY, work, at_once=True)

    @cached_property
    def holding(self) -> Ticker:
        return Ticker(HOLD_EVERY, self._check_hold)

    @cached_property
    def looks(self) -> Ticker:
        return Ticker(LOOK_EVERY, self.look, at_once=True)

    def sweep(self, account: str) -> Swept:
        if self.tenure is not None:
            self.tenure.check()
        return super().sweep(account)

    def erase(self) -> Erased:
        done = super().erase()
        settled = self.subscribers.settled()
        self._database.trim_feed(self.audits.settled(settled))
        self._database.shrink()
        return done

    def rest(self) -> list[str]:
        """Stop deciding, and end the machines of the simulated cloud, which only this server knows. Returns lines about
        what continues without the server, and how to end it."""
        self.loop.stop()
        self.effects.stop()
        ended = self._cloud.switch_off() if self._cloud is not None else 0
        return shutdown_lines(
            self.plane, ended=ended, simulated=self._cloud.facts.name if self._cloud is not None else ""
        )

    def close(self) -> None:
        self.subscribers.stop()
        self.refreshes.stop()
        self.watches.stop()
        if self.backing_up is not None:
            self.backing_up.stop()
        self.holding.stop()
        self.looks.stop()
        self.sweeps.stop()
        self.erasures.stop()
        self.accounts.stop()
        if self._tunnels is not None:
            self._tunnels.stop()
        self.loop.stop()
        self.effects.stop()
        self.renewing.stop()
        self.measuring.stop()
        self.tracing.stop()
        self._renew_all()
        self.relays.remove()
        self.audits.close()
        super().close()


def _providers(settings: ServerSettings) -> Providers:
    from chalicelib.runtime.accounts import providers

    return providers(settings.catalog_file, settings.endpoints, catalog_url=settings.catalog_url)


def _door_settings(settings: ServerSettings, server_url: str, seats: int) -> DoorSettings:
    proto = server_url.partition(":")[0]
    return DoorSettings(domain=settings.services_domain, proto=proto, most=doors_share(seats))


def _permissions(settings: ServerSettings, config: ServerConfig) -> Permissions:
    given = config.default_permissions.meant if config.default_permissions else Permissions()
    return replace(given, allow_non_admins_run_unisolated=True) if settings.trust_jobs else given


def agent_program(folder: Path) -> Path:
    """The agent as one file in the data folder, built from the package at start. On a full disk, agents get that of
    the last start, so that the server starts and shows what it has."""
    from chalicelib.agent.program.build import build, write
    from chalicelib.store.disk import disk_error

    program = folder / PROGRAM_FILE
    try:
        if not program.exists() or program.read_bytes() != build():
            write(str(program))
        program.chmod(0o700)
    except OSError as error:
        problem = disk_error(program, error)
        if not isinstance(problem, StorageFull) or not program.exists():
            raise problem from error
        log.warning("agents get the program of the last start: %s", problem)
    return program

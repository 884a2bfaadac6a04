"""The accounts of a running control plane: those that its operator started it with, and those in the store.

One read of the roster shows whether anything has changed; without a change nothing else is read. An account whose
record is unchanged stays in use, with its clients.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

import orjson
from pydantic import ValidationError

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.backends.registry import BACKENDS, Row, backend_class, built, facts_of
from chalicelib.backends.spi import Backend
from chalicelib.domain import keys
from chalicelib.domain.backends import BackendRoster, Configured
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.specs.reading import Spec
from chalicelib.engine import account_checks
from chalicelib.engine.ports import Clock, ConfigurationCheck
from chalicelib.errors import Refused
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.port import Store
from chalicelib.store.seal import Sealer
from chalicelib.usecases.context import Providers

log = logging.getLogger(__name__)

MAX_AGE: Micros = 5 * SECOND  # how long a process may use credentials that another one has replaced

Table = Mapping[str, Row]
NO_ENDPOINTS: Mapping[str, str] = MappingProxyType({})
NO_TAGS: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def providers(
    prices: Path | None = None,
    endpoints: Mapping[str, str] = NO_ENDPOINTS,
    *,
    catalog_url: str = "",
    tags: Mapping[str, Mapping[str, str]] = NO_TAGS,
    table: Table = BACKENDS,
) -> Providers:
    """The providers in the table. `prices`: the operator's price file, `catalog_url`: the published catalogue of
    prices. `endpoints`: what stands in for them. `tags`: more tags of what is bought there; a backend's own win."""
    published = None
    if catalog_url:
        from chalicelib.backends.published_prices import PublishedPrices

        published = PublishedPrices(catalog_url)
    offline = OfflinePrices(prices, published) if prices or published else None
    make = partial(make_backend, offline=offline, endpoints=endpoints, tags=tags, table=table)
    facts = partial(facts_of, table=table)
    return Providers(built(table), make, facts)


def make_backend(
    config: Spec,
    offline: OfflinePrices | None = None,
    endpoints: Mapping[str, str] = NO_ENDPOINTS,
    tags: Mapping[str, Mapping[str, str]] = NO_TAGS,
    table: Table = BACKENDS,
) -> Backend:
    """The backend that a configuration describes. Raises Refused if its SDK isn't installed."""
    name = str(getattr(config, "type"))  # noqa: B009
    kind: Callable[..., Backend] = backend_class(name, table)
    if name in tags:
        config = config.model_copy(update={"tags": {**tags[name], **(getattr(config, "tags", None) or {})}})
    given: dict[str, object] = {} if offline is None else {"prices": offline}
    if name in endpoints:
        given["endpoint"] = endpoints[name]
    return kind(config, **given)


class StoredAccounts:
    """The current accounts. `always`: accounts of every project that no record describes."""

    def __init__(
        self,
        store: Store,
        seal: Sealer,
        clock: Clock,
        providers: Providers,
        always: Iterable[Account] = (),
        changed: Callable[[str], object] = lambda account: None,
    ) -> None:
        """`changed` is called for each account that this process changes."""
        self._store, self._seal, self._clock = store, seal, clock
        self._always, self._providers, self._changed = tuple(always), providers, changed
        self._lock, self._held = threading.Lock(), threading.local()
        self._now = Accounts(self._always)
        self._version = 0
        self._checked_at: Micros | None = None
        self._configured: dict[tuple[str, str], tuple[Configured, Account]] = {}
        self._replaced: list[Account] = []  # possibly still in use, so they are closed at the end

    # --- as the engine's port ----------------------------------------------------------------------------------------

    def of(self, project_id: str, type: str, *, now: bool = False) -> Backend:
        found = self._accounts()
        if now or type not in found.facts(project_id):  # it may have been deleted, or configured, a moment ago
            found = self._current(at_once=True)
        return found.of(project_id, type)

    def facts(self, project_id: str) -> Mapping[str, BackendFacts]:
        return self._accounts().facts(project_id)

    def accounts(self, project_id: str | None = None) -> Sequence[Account]:
        return self._accounts().accounts(project_id)

    def account(self, key: str) -> Account | None:
        return self._current(at_once=True).account(key)

    @contextmanager
    def held(self) -> Iterator[None]:
        outer = getattr(self._held, "open", False)
        self._held.open = True
        try:
            yield
        finally:
            self._held.open = outer
            if not outer:
                self._held.accounts = None

    def invalidate(self, *accounts: str) -> None:
        with self._lock:
            self._checked_at = None
        self._held.accounts = None
        for account in accounts:
            self._changed(account)

    def close(self) -> None:
        for account in (*self._now.accounts(), *self._replaced):
            account.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _accounts(self) -> Accounts:
        if not getattr(self._held, "open", False):
            return self._current()
        found: Accounts | None = getattr(self._held, "accounts", None)
        if found is None:
            found = self._held.accounts = self._current()
        return found

    def _current(self, *, at_once: bool = False) -> Accounts:
        with self._lock:
            now = self._clock.now()
            if at_once or self._checked_at is None or not 0 <= now - self._checked_at < MAX_AGE:
                self._read()
                self._checked_at = now
            return self._now

    def _read(self) -> None:
        roster = nouns.find(self._store, BackendRoster, keys.ROSTER) or BackendRoster()
        if roster.version == self._version:
            return
        records = nouns.find_many(self._store, Configured, [keys.backend(*row) for row in roster.rows])
        before, self._configured = self._configured, {}
        for record in records:
            if record is not None and self._usable(record):
                row = (record.project_id, record.type)
                known = before.get(row)
                self._configured[row] = known if known and known[0] == record else (record, self._account(record))
        stay = {id(account) for _, account in self._configured.values()}
        self._replaced += [account for _, account in before.values() if id(account) not in stay]
        self._now = Accounts([*self._always, *(account for _, account in self._configured.values())])
        self._version = roster.version

    def _usable(self, record: Configured) -> bool:
        if any(account.facts.name == record.type for account in self._always):
            log.error("project %s: the simulated cloud stands in for its backend %s", record.project_id, record.type)
            return False
        if record.type not in self._providers.types:
            log.error("project %s: this version has no backend %s", record.project_id, record.type)
            return False
        return True

    def _account(self, record: Configured) -> Account:
        regions = orjson.loads(record.config).get("regions") or ()
        return Account(self._providers.facts(record.type), partial(self._make, record), record.project_id, regions)

    def _make(self, record: Configured) -> Backend:
        return self._providers.make(opened(self._seal, record.project_id, record.type, record.config))


def check(
    request: ConfigurationCheck,
    seal: Sealer,
    providers: Providers,
    install_id: str,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Check a configuration with a backend created for it. Raises the provider's error."""
    backend = providers.make(opened(seal, request.project_id, request.type, request.config))
    try:
        account_checks.check_in_turn(backend, request.expected, install_id, pause)
    finally:
        backend.close()


def opened(seal: Sealer, project_id: str, type: str, config: str) -> Spec:
    """A stored backend configuration (`config`: JSON with sealed secrets), with its secrets unsealed."""
    from chalicelib.configuration.server_spec import config_model

    model = config_model(type)
    assert model is not None, "a type of the table has a model"
    raw = sealed_specs.opened(seal, model, orjson.loads(config), sealed_specs.of_backend(project_id, type))
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        fields = sorted({".".join(map(str, each["loc"])) for each in error.errors(include_input=False)})
        raise Refused(
            f"the settings of the backend {type} were stored by another version, and this one refuses "
            f"{', '.join(fields)}: configure it again"
        ) from None  # its message contains the values, which may be secret

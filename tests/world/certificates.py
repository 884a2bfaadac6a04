"""A gateway that is told about its hosts, and a certificate authority in memory, on virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from chalicelib.domain import keys
from chalicelib.domain.certificates import Certificate, certificate_id
from chalicelib.domain.events import Event
from chalicelib.domain.gateways import GatewayStatus
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.engine.certificate_authority import AuthorityAccount, OrderState, PlacedOrder, SignedCertificate
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.errors import Gone
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.services import certificates
from chalicelib.usecases.services.certificates import GatewayCertificates
from tests.world.engine import Engine
from tests.world.gateways import gateway
from tests.world.nouns import PROJECT
from tests.world.ports import Books, accounts

HOST = "chat.example.com"
LIFE = 90 * DAY


Answer = TypeVar("Answer")


class Killed(BaseException):
    """The process that made the call is no more."""


@dataclass
class _Order:
    url: str
    host: str
    token: str
    account: str
    state: str = "pending"
    error: str = ""
    key: str = ""
    signed: SignedCertificate | None = None
    placed_at: Micros = 0


@dataclass
class FakeAuthority:
    """It keeps to what RFC 8555 says of the states of orders. Whoever repeats a pending order gets the same, as from
    Let's Encrypt. `served` says what a host answers for a token."""

    now: Callable[[], Micros]
    served: Callable[[str, str], str]
    directory: str = "https://ca.test/directory"
    faults: dict[str, list[BaseException]] = field(default_factory=dict)  # call → what its next ones raise, and no more
    dies: str = ""  # whoever makes this call is killed before it hears the answer
    slow: int = 0  # looks until it has decided, or signed
    accounts: dict[str, str] = field(default_factory=dict)  # key → address
    orders: dict[str, _Order] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    proved: Micros = 0  # for so long an account needn't prove a host again
    probed: int = 0  # times that it looked at a host
    issued: int = 0
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _left: int = 0

    def new_key(self) -> str:
        return f"PRIVATE KEY {next(self._numbers)}"

    def register(self, key: str) -> str:
        return self._done("register", lambda: self.accounts.setdefault(key, f"{self.directory}/{len(self.accounts)}"))

    def order(self, account: AuthorityAccount, host: str, key: str) -> PlacedOrder:
        def place() -> PlacedOrder:
            assert self.accounts[account.key] == account.url
            pending = (o for o in self.orders.values() if (o.host, o.account) == (host, account.url))
            found = next((each for each in pending if each.state in ("pending", "ready")), None)
            if found is None:
                number = next(self._numbers)
                found = _Order(f"{self.directory}/order/{number}", host, f"token-{number}", account.url)
                found.placed_at = self.now()
                found.state = "ready" if self._has_proved(found) else "pending"
                self.orders[found.url] = found
            if found.state == "ready":
                return PlacedOrder(found.url)
            return PlacedOrder(found.url, f"{found.url}/challenge", found.token, f"{found.token}.{account.url}")

        return self._done("order", place)

    def _has_proved(self, order: _Order) -> bool:
        same = (each for each in self.orders.values() if (each.host, each.account) == (order.host, order.account))
        return any(each.state == "valid" and each.placed_at + self.proved > self.now() for each in same)

    def answer(self, account: AuthorityAccount, order: str) -> OrderState:
        def answer() -> OrderState:
            found = self._order(order)
            if found.state == "pending":
                self.probed += 1
                self._left = self.slow
                good = self.served(found.host, found.token) == f"{found.token}.{account.url}"
                found.state = "ready" if good else "invalid"
                found.error = "" if good else f"{found.host} doesn't answer: connection refused."
                return OrderState("pending")
            return OrderState(found.state, found.error)

        return self._done("answer", answer)

    def check(self, account: AuthorityAccount, order: str) -> OrderState:
        return self._done("check", lambda: self._record_program(order))

    def collect(self, account: AuthorityAccount, order: str, host: str, key: str) -> OrderState | SignedCertificate:
        def collect() -> OrderState | SignedCertificate:
            found = self._order(order)
            if found.state == "ready":
                found.state, found.key, self._left = "valid", key, self.slow
                self.issued += 1
                since = self.now() // SECOND * SECOND
                found.signed = SignedCertificate(f"CERTIFICATE {self.issued} OF {found.host}", since, since + LIFE)
                return OrderState("processing")
            seen = self._record_program(order)
            if seen.state == "valid" and found.signed is not None:
                assert found.key == key
                return found.signed
            return seen

        return self._done("collect", collect)

    def _done(self, name: str, call: Callable[[], Answer]) -> Answer:
        if self.faults.get(name):
            raise self.faults[name].pop(0)
        self.calls.append(name)
        found = call()
        if self.dies == name:
            self.dies = ""
            raise Killed(name)
        return found

    def _order(self, url: str) -> _Order:
        if url not in self.orders:
            raise Gone(f"there is no order {url}")
        return self.orders[url]

    def _record_program(self, url: str) -> OrderState:
        found = self._order(url)
        if self._left > 0:
            self._left -= 1
            return OrderState("processing")
        return OrderState(found.state, found.error)


class Stage:
    """One gateway, which asks what to serve whenever `ask` is called, and answers what it was told then."""

    def __init__(self, **ports: Any) -> None:
        self.place = Engine.in_memory(**ports)
        self.gateway = gateway().with_(version=0, due_at=None)
        self.place.save(self.gateway)
        self.answers: dict[str, str] = {}  # at every host of the gateway, as its machine serves them
        self.reachable = True
        self.authority = FakeAuthority(self.place.now, lambda host, token: self.answered(token))
        self.hosts: Sequence[str] = (HOST,)
        self.lost: Callable[[Effect], bool] = lambda effect: False

    def answered(self, token: str) -> str:
        return self.answers.get(token, "") if self.reachable else ""

    @property
    def executor(self) -> Executor:
        acting = EffectContext(
            self.place.store,
            self.place,
            accounts(),
            "install",
            b"k" * 32,
            seal=self.place.plane.seal,
            authority=self.authority,
        )
        return Executor(acting, Loader(Reader(self.place.store), Books(), accounts()), wake=self.place.woken.extend)

    def ask(self, hosts: Sequence[str] | None = None) -> GatewayCertificates:
        """What the gateway's machine does all day: it takes the news, and its next question says that it has."""
        gateway = self.place.again(self.gateway)
        answer = certificates.gateway_certificates(self.place.plane, gateway, self.hosts if hosts is None else hosts)
        self.report([each for each in answer.unconfirmed if each.order and self.answered(each.order.token)])
        self.answers = dict(answer.challenges)
        return answer

    def report(self, those: Iterable[Certificate], num: int = 0) -> None:
        certificates.confirm_challenges(self.place.plane, self.place.again(self.gateway), num, tuple(those))

    def settle(self) -> None:
        """Passes and effects, until there is nothing more to do now."""
        for _ in range(50):
            self.place.at += 1
            woken = self.place.take_woken()
            self.place.reconciler().run(sorted(woken))
            effects, self.place.effects = self.place.effects, []
            for effect in effects:
                if not self.lost(effect):
                    self.place.at += 1
                    self.executor.execute(effect)
            if not effects and not self.place.woken:
                return
        raise AssertionError("there is always more to do")

    def after(self, wait: Micros) -> None:
        """The gateway asks before and after."""
        self.place.at += wait
        self.settle()
        self.ask()
        self.settle()
        self.ask()
        self.settle()

    def until(self, is_so: Callable[[], bool], step: Micros = 5 * SECOND, tries: int = 2000) -> None:
        for _ in range(tries):
            if is_so():
                return
            self.after(step)
        raise AssertionError(f"it never happened: {self.found()}")

    def found(self, host: str = HOST) -> Certificate | None:
        return nouns.find(self.place.store, Certificate, keys.certificate(certificate_id(self.gateway.id, host)))

    def certificate(self, host: str = HOST) -> Certificate:
        found = self.found(host)
        assert found is not None
        return found

    def messages(self) -> list[str]:
        """The history of the project, oldest first."""
        found = (nouns.read(Event, record) for record in all_of(self.place.store, "main", keys.events_of(PROJECT)))
        return [event.message for event in found]

    def end(self) -> None:
        """The gateway is deleted."""
        self.place.save(
            self.place.again(self.gateway).with_(**{"status": GatewayStatus.deleted, "deleted_at": self.place.at})
        )

    def all_of_it(self) -> str:
        """Whatever is stored, as text."""
        return "\n".join(str(record.body) for record in self.place.store.scan(limit=10_000))

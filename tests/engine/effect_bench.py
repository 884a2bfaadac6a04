"""A pending instance, and what effects on it come to."""

from __future__ import annotations

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Script
from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.effects.purchases import Purchases
from chalicelib.engine.execute import Executor
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.load import Loader
from chalicelib.engine.log_context import ids
from chalicelib.engine.read import Reader
from chalicelib.planning.kernel.plan import Outcome, Plan
from chalicelib.planning.kernel.purchases import (
    Create,
    Describe,
    Terminate,
)
from chalicelib.planning.machines.outcomes import decide_outcome
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.store import nouns
from tests.world.engine import Engine
from tests.world.ports import Books, accounts

KEY = b"k" * 32
OTHER = "00000000-0000-4000-8000-000000000001"


class Bench:
    """A pending instance of the scripted cloud, and everything an effect on it came to."""

    def __init__(self) -> None:
        self.place = Engine.in_memory(backends=accounts(FACTS))
        self.script = Script(end=SECOND)
        self.cloud = FakeCloud(self.place.now, script=self.script)
        self.outcomes: list[Outcome] = []
        self.logged_as: list[str] = []
        self.executor = self.with_backend(self.cloud)
        fleet = self.place.fleet("cloud", nodes="0..3")
        offer = next(offer for offer in self.cloud.offers() if offer.instance.name == "sim.4cpu")
        made = self.place.host(fleet, 0).with_(
            status=InstanceStatus.pending,
            offer=offer,
            tags={"team": "blue", "dstack-install": "not theirs to say"},
            started_at=None,
            act_until=self.place.at + FACTS.create_timeout + FACTS.visibility_lag,
            deadline=self.place.at + FACTS.provisioning_timeout,
        )
        self.place.store.commit([nouns.put(made)])
        self.first = made

    def with_backend(self, backend: Backend) -> Executor:
        def noted(snapshot: InstanceSnapshot, outcome: Outcome) -> Plan:
            self.outcomes.append(outcome)
            self.logged_as.append(f"instance/{ids()['instance_id']}")
            return decide_outcome(snapshot, outcome)

        return self.executing(Account.of(backend), kinds=KINDS.deciding("instance", conclude=noted))

    def executing(self, *accounts: Account, kinds: Kinds = KINDS) -> Executor:
        place, backends = self.place, Accounts(accounts)
        here = EffectContext(place.store, place, backends, "install", KEY, "http://plane:3000")
        return Executor(here, Loader(Reader(place.store), Books(), backends), wake=place.woken.extend, kinds=kinds)

    @property
    def instance(self) -> Instance:
        return self.place.again(self.first)

    @property
    def effect(self) -> Create:
        return Create(self.unit, FACTS.name, self.first.act_until or 0)

    @property
    def unit(self) -> str:
        return f"instance/{self.first.id}"

    @property
    def describe(self) -> Describe:
        return Describe(self.unit, FACTS.name, self.place.at + SECOND)

    @property
    def end(self) -> Terminate:
        return Terminate(self.unit, FACTS.name, self.place.at + SECOND)

    def request(self, instance: Instance | None = None) -> CreateRequest:
        return Purchases(self.executor.here).request(instance or self.instance)

    def change(self, **changes: object) -> None:
        self.place.store.commit([nouns.put(self.instance.with_(**changes))])

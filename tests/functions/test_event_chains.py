"""Events that ask for events: how long a chain becomes, measured on the handlers, and what ends it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.registry import CLOUDS
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.simulated.script import Fault, Script
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.event_chains import LONGEST, EventChain
from chalicelib.runtime.lambda_ import WakeUps
from chalicelib.runtime.provider_functions import ProviderFunctions
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import ServerSettings
from chalicelib.usecases.operator.first_start import first_start
from functions import provider, reconcile, refresh_catalog
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.harness.lambda_host import scheduled_event
from tests.world.plane import World
from tests.world.time import Clock

pytestmark = pytest.mark.slow
BY_DEFAULT = 16  # hops after which Lambda drops the next event of a chain, unless the function allows it


@dataclass
class Lambda:
    """The two functions, each with its own process; events are handled in turn. It counts as Lambda does: how many
    functions ran one after the other before this one."""

    roots: dict[str, Root] = field(default_factory=dict)
    waiting: list[tuple[str, dict[str, Any], int]] = field(default_factory=list)
    longest: int = 0
    _at: int = 0

    def __call__(self, service: str) -> Lambda:
        return self

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> None:
        self.waiting.append((FunctionName, json.loads(Payload), self._at + 1))

    def run(self) -> None:
        handlers = {"reconcile": reconcile.handler, "provider_clouds": provider.handler}
        while self.waiting:
            function, event, self._at = self.waiting.pop(0)
            self.longest = max(self.longest, self._at)
            assert self.longest < 3 * LONGEST, "it has no end"
            handlers[function](event, None, self.roots[function])
        self._at = 0

    def schedule(self) -> None:
        self.waiting.append(("reconcile", scheduled_event("reconcile"), 0))
        self.run()


@dataclass
class Market:
    """A cloud with no machine to sell, and somebody who wants one."""

    aws: Lambda
    rig: Rig
    cloud: FakeCloud
    root: Root

    @classmethod
    def at(cls, folder: Path, longest: int) -> Market:
        clock, aws = Clock(), Lambda()
        made = EmbeddedRoot(ServerSettings(data_dir=folder), ServerConfig(projects=()), "http://plane", clock=clock)
        cloud = FakeCloud(clock.now, script=Script(faults=[Fault("create", "InsufficientCapacity", times=1_000)]))
        backends = Accounts([Account.of(cloud)])

        def process() -> Root:
            chain = EventChain(longest)
            wake, work = WakeUps(aws, "reconcile", chain), ProviderFunctions(aws, {CLOUDS: "provider_clouds"}, chain)
            ports = {"wake": wake, "effects": work, "account_work": work, "chain": chain}
            return Root(replace(made.ports, backends=backends, **ports))

        aws.roots = {"reconcile": process(), "provider_clouds": process()}
        root = process()
        _, project = first_start(root.plane, ADMIN)
        refresh_catalog.handler(scheduled_event("refresh"), None, root)
        aws.run()
        return cls(aws, Rig(World(root.plane, clock, folder), project), cloud, root)

    def submit_run(self) -> None:
        self.rig.ok("P/fleets/apply", {"plan": {"spec": fleet("pool")}, "force": False})
        submit(self.rig, task("hello"))
        self.aws.run()

    def run(self) -> dict[str, Any]:
        return dict(self.rig.ok("P/runs/get", {"run_name": "hello"}))


def ended(market: Market, schedules: int) -> int:
    """How often the schedule had to begin anew until the run was over."""
    for number in range(schedules):
        if market.run()["status"] == "failed":
            return number
        market.rig.world.clock.pass_(60)
        market.aws.schedule()
    raise AssertionError(market.run()["status"])


def test_a_walk_through_refused_offers_is_one_chain_that_lambda_would_cut_off(tmp_path: Path) -> None:
    """So the functions allow it. Nobody waits for a schedule in it."""
    market = Market.at(tmp_path, LONGEST)
    market.submit_run()
    assert BY_DEFAULT < market.aws.longest <= LONGEST, market.aws.longest
    assert ended(market, 1) == 0


@pytest.mark.parametrize("longest", [4, 12])
def test_a_chain_has_an_end_and_the_schedule_goes_on_where_it_was(tmp_path: Path, longest: int) -> None:
    """As in an emulator that allows fewer, whatever its functions say."""
    market = Market.at(tmp_path, longest)
    market.submit_run()
    assert ended(market, 60) > 0, "a chain was too long"
    assert market.aws.longest <= longest + 1, "an effect is sent in any case"

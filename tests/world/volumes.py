"""A plane whose one backend is the simulated cloud, for volumes: passes and effects run when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Script
from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.domain.volumes import Attachment, Volume
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.engine.sweep import Sweeper, Swept
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.machines import volumes
from tests.world.engine import Engine
from tests.world.nouns import PROJECT
from tests.world.ports import Books

BACKEND = "aws"
REGION = "sim-east"  # where a volume has one machine at a time
USER = User(id="user", name="ada", created_at=0, token_hash="")


def attachment(**changes: Any) -> Attachment:
    """To a machine that isn't there."""
    fields: dict[str, Any] = {
        "instance_id": "i-1",
        "instance_name": "pool-0",
        "instance_num": 0,
        "fleet_id": "f-1",
        "fleet_name": "pool",
        "job_id": "j-1",
        "run_id": "r-1",
        "run_name": "train",
        "since": 0,
    }
    return Attachment(**{**fields, **changes})


class Stage:
    def __init__(self, **ports: Any) -> None:
        self.script = Script(lag=2 * SECOND, end=SECOND)
        clouds: list[FakeCloud] = []
        self.place = Engine.in_memory(**{"backends": Accounts(), **ports})
        self.cloud = FakeCloud(self.place.now, script=self.script, facts=FACTS.with_(name=BACKEND))
        clouds.append(self.cloud)
        self.configure(self.cloud)
        self.project = Project(id=PROJECT, name="main", owner_id=USER.id, created_at=self.place.at)
        self.place.store.commit([nouns.put(self.project), nouns.pointer(keys.project_name("main"), PROJECT)])
        self.lost: Callable[[Effect], bool] = lambda effect: False  # effects that nobody executes

    def configure(self, *clouds: Any) -> None:
        self.backends = Accounts([Account.of(cloud) for cloud in clouds])
        object.__setattr__(self.place.plane, "backends", self.backends)

    @property
    def acting(self) -> EffectContext:
        return EffectContext(self.place.store, self.place, self.backends, "install", b"k" * 32)

    @property
    def executor(self) -> Executor:
        return Executor(
            self.acting, Loader(Reader(self.place.store), Books(), self.backends), wake=self.place.woken.extend
        )

    # --- what users do -----------------------------------------------------------------------------------------------

    def create(self, name: str = "data", **fields: Any) -> Volume:
        configuration = {
            "type": "volume",
            "name": name,
            "backend": BACKEND,
            "region": REGION,
            "size": "100GB",
            **fields,
        }
        given = {name: value for name, value in configuration.items() if value is not None}
        return volumes.create(self.place.plane, USER, self.project, given, ProjectRole.admin)

    def created(self, name: str = "data", **fields: Any) -> Volume:
        """It is there."""
        volume = self.create(name, **fields)
        self.settle()
        self.after(2 * SECOND)
        self.after(5 * SECOND)
        return self.place.again(volume)

    def delete(self, *names: str) -> None:
        volumes.delete(self.place.plane, USER, self.project, names or ("data",))

    # --- what happens ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Passes and effects, until there is nothing more to do now."""
        for _ in range(50):
            self.place.at += 1  # or the order of events would be their ids'
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
        self.place.at += wait
        self.settle()

    def until(self, is_so: Callable[[], bool], step: Micros = 5 * SECOND, tries: int = 1000) -> None:
        for _ in range(tries):
            if is_so():
                return
            self.after(step)
        raise AssertionError("it never happened")

    def sweep(self, after: Micros = 0) -> Swept:
        self.place.at += after
        (account,) = self.backends.accounts()
        return Sweeper(self.executor).run(account)

    # --- what is seen ------------------------------------------------------------------------------------------------

    def again(self, volume: Volume) -> Volume:
        return self.place.again(volume)

    def messages(self) -> list[str]:
        """The history of the project, oldest first."""
        found = (nouns.read(Event, record) for record in all_of(self.place.store, "main", keys.events_of(PROJECT)))
        return [f"{event.targets[0].name}: {event.message}" for event in found]

"""Two projects with the same provider, each with an account of its own: offers, machines, ages and errors stay apart,
from the plan that a user reads to the machine's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Script
from chalicelib.catalog.offers import StoredCatalog
from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.offers import Offer
from chalicelib.domain.tenants import Project
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.engine.reconcile import Reconciler
from chalicelib.engine.sweep import Sweeper
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from tests.api.rig import Rig, fleet, submit, task

NIMBUS = FACTS.with_(name="nimbus", title="Nimbus", simulated=False)


class Nimbus(FakeCloud):
    """An account whose prices are its own, and nothing can be bought at while `closed`."""

    closed = False

    def __init__(self, now: Callable[[], Micros], price: float) -> None:
        super().__init__(now, script=Script(end=0), facts=NIMBUS.with_(provisioning_timeout=round(price) * MINUTE))
        self.price = price

    def offers(self) -> Sequence[Offer]:
        return [offer.with_(backend="nimbus", price=self.price) for offer in super().offers()]


class Projects:
    """`main` and `other` with an account each, `third` with none; the passes and effects of a whole plane."""

    def __init__(self, folder: Path) -> None:
        self.rig = Rig.at(folder)
        world = self.rig.world
        self.clock, self.store = world.clock, world.plane.store
        self.main, self.other = self.rig.project, self.rig.another_project("other")
        self.rig.another_project("third")
        self.clouds = {self.main.id: Nimbus(self.clock.now, 2.0), self.other.id: Nimbus(self.clock.now, 3.0)}
        self.accounts = Accounts(Account.of(cloud, project_id) for project_id, cloud in self.clouds.items())
        self.catalog = StoredCatalog(world.plane.blobs, self.clock, self.accounts)
        for account in self.accounts.accounts():
            self.catalog.refresh(account.key)
        world.plane = replace(world.plane, backends=self.accounts, catalog=self.catalog)
        self.effects: list[Effect] = []
        self.reconciler = Reconciler(
            self.store,
            self.clock,
            wake=world.woken.extend,
            notify_agents=world.rung.extend,
            effects=self,
            catalog=self.catalog,
            backends=self.accounts,
        )
        self.executor = self.executing(self.accounts)

    def executing(self, accounts: Accounts) -> Executor:
        world = self.rig.world
        here = EffectContext(self.store, self.clock, accounts, world.plane.install_id, world.plane.install_key)
        return Executor(here, Loader(Reader(self.store), self.catalog, accounts), wake=world.woken.extend)

    def submit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def work(self) -> None:
        """Passes and effects until nothing is left to do now."""
        self.reconciler.run(self.rig.world.take_woken())
        while self.effects:
            self.executor.execute(self.effects.pop(0))
            self.reconciler.run(self.rig.world.take_woken())

    def of(self, project: Project) -> Rig:
        return Rig(self.rig.world, project)

    def order(self, project: Project, name: str) -> Instance:
        """A fleet with one machine, and a run on it."""
        rig = self.of(project)
        made = rig.ok("P/fleets/apply", {"plan": {"spec": fleet(name), "current_resource": None}, "force": False})
        submit(rig, task(name))
        self.work()
        (record,) = all_of(self.store, "gsi1", keys.instances_of(made["id"]))
        return nouns.read(Instance, record)

    def now(self, instance: Instance) -> Instance:
        found = nouns.find(self.store, Instance, keys.instance(instance.id))
        assert found is not None
        return found


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects(tmp_path)


def test_a_plan_shows_what_the_projects_own_account_sells(projects: Projects) -> None:
    seen = {}
    for name in ("main", "other", "third"):
        path = f"/api/project/{name}"
        offers = projects.rig.ok(f"{path}/fleets/get_plan", {"spec": fleet()})["offers"]
        backends = projects.rig.ok(f"/api/projects/{name}/get")["backends"]
        seen[name] = ({offer["price"] for offer in offers}, [backend["name"] for backend in backends])
    assert seen == {"main": ({2.0}, ["nimbus"]), "other": ({3.0}, ["nimbus"]), "third": (set(), [])}


def test_a_machine_is_bought_at_its_projects_account_by_that_accounts_facts(projects: Projects) -> None:
    for project in (projects.main, projects.other):
        cloud = projects.clouds[project.id]
        instance = projects.order(project, f"of-{project.name}")
        assert [dict(body["tags"])["dstack-instance"] for body in cloud.machines()] == [instance.id]
        assert (instance.status, instance.offer.price) == (InstanceStatus.provisioning, cloud.price)
        assert instance.deadline == instance.created_at + cloud.facts.provisioning_timeout


@pytest.mark.slow
def test_what_is_taken_out_of_one_project_is_still_there_for_the_other(projects: Projects) -> None:
    main, other = projects.order(projects.main, "ours"), projects.order(projects.other, "theirs")
    accounts = Accounts([Account.of(projects.clouds[projects.other.id], projects.other.id)])
    projects.executor = projects.executing(accounts)
    projects.clock.pass_(10 * 60)  # neither agent was ever heard
    projects.work()
    projects.clock.pass_(6)
    projects.work()
    assert projects.now(main).status is InstanceStatus.terminating
    assert "nimbus isn't configured" in projects.now(main).message
    assert projects.now(other).status is InstanceStatus.terminated
    left = [len(cloud.machines()) for cloud in projects.clouds.values()]
    assert left == [1, 0]


@pytest.mark.slow
def test_a_sweep_finds_each_projects_loss_in_its_own_account(projects: Projects) -> None:
    main, other = projects.order(projects.main, "ours"), projects.order(projects.other, "theirs")
    for handle in main.handles:
        projects.clouds[projects.main.id].lose(handle.id)
    sweeper, accounts = Sweeper(projects.executor), projects.accounts.accounts()
    for account in accounts:
        sweeper.run(account)
    projects.clock.pass_((NIMBUS.visibility_lag + NIMBUS.create_timeout) / SECOND)
    lost = {account.project_id: sweeper.run(account).lost for account in accounts}
    assert lost == {projects.main.id: [main.id], projects.other.id: []}
    assert projects.now(main).status is InstanceStatus.terminated
    assert projects.now(other).status is InstanceStatus.provisioning

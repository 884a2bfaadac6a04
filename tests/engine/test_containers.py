"""What a container is requested with: its job's image, its registry's login, and an agent with a single-use token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.catalog import CONTAINERS
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Fault, Script
from chalicelib.backends.spi import Backend, RegistryLogin
from chalicelib.catalog.offers import StoredCatalog
from chalicelib.domain import keys
from chalicelib.domain.container_script import SCRIPT
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job, Mounted
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.effects.containers import Containers
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.engine.reconcile import Reconciler
from chalicelib.errors import BackendError, ContainerFailed, Throttled
from chalicelib.planning.jobs.jobs import agent_task
from chalicelib.planning.kernel.plan import Effect
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from tests.api.rig import Rig, fleet, submit, task

LOGIN = {"username": "team", "password": "${{ secrets.registry }}"}
PRIVATE = {"image": "example.com/team/trainer:1", "registry_auth": LOGIN}


class Plane:
    """A project with a fleet of containers, its passes and its effects."""

    def __init__(self, folder: Path, backend: Backend | None = None) -> None:
        self.script = Script(end=0)
        self.carriers: dict[str, str] | None = {"x86": "c-86", "arm": ""}
        self.image_command: tuple[str, ...] | BackendError = ("/entry", "a b")
        self.looked_up: list[tuple[str, RegistryLogin | None, str]] = []
        self.cloud = FakeCloud(self.now, script=self.script, facts=FACTS.with_(containers=True))
        self.accounts = Accounts([Account.of(backend or self.cloud)])
        self.rig = Rig.at(folder, backends=self.accounts)
        world = self.rig.world
        catalog = StoredCatalog(world.plane.blobs, world.clock, self.accounts)
        if backend is None:
            catalog.refresh(self.accounts.accounts()[0].key)
        self.effects: list[Effect] = []
        ports: dict[str, Any] = {"catalog": catalog, "backends": self.accounts}
        self.reconciler = Reconciler(
            world.store, world.clock, wake=world.woken.extend, notify_agents=world.rung.extend, effects=self, **ports
        )
        plane = world.plane
        self.here = here = EffectContext(
            world.store,
            world.clock,
            self.accounts,
            plane.install_id,
            plane.install_key,
            "http://plane",
            carrier=self.carrier,
            image_command=self.look_up,
            ask_market=catalog.ask,
            wake=world.woken.extend,
            seal=plane.seal,
        )
        loader = Loader(Reader(world.store), catalog, self.accounts)
        self.executor = Executor(here, loader, wake=world.woken.extend)
        regions = [CONTAINERS] if backend is None else None
        plan = {"spec": fleet("pods", nodes="0..4", regions=regions), "current_resource": None}
        self.fleet = self.rig.ok("P/fleets/apply", {"plan": plan, "force": False})["id"]

    def now(self) -> int:
        return self.rig.world.now()

    def carrier(self, architecture: str) -> str:
        if self.carriers is None:
            raise Throttled("the Python for images without one is being made", retry_after=10.0)
        return self.carriers[architecture]

    def look_up(self, image: str, login: RegistryLogin | None, architecture: str) -> tuple[str, ...]:
        self.looked_up.append((image, login, architecture))
        if isinstance(self.image_command, BackendError):
            raise self.image_command
        return self.image_command

    def submit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def secret(self, value: str) -> None:
        self.rig.ok("P/secrets/create_or_update", {"name": "registry", "value": value})

    def order(self, **config: Any) -> None:
        """A run, and the pass that orders its container."""
        submit(self.rig, task("work", **config))
        self.decide()

    def decide(self) -> None:
        self.reconciler.run(self.rig.world.take_woken())

    def act(self) -> None:
        """The effects that are ordered, and what follows from them."""
        effects, self.effects = self.effects, []
        for effect in effects:
            self.executor.execute(effect)
        self.decide()

    def after(self, seconds: float) -> None:
        self.rig.world.at += round(seconds * SECOND)
        self.decide()

    @property
    def instance(self) -> Instance:
        (record,) = all_of(self.rig.world.store, "gsi1", keys.instances_of(self.fleet))
        return nouns.read(Instance, record)

    @property
    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rig.ok("P/runs/get", {"run_name": "work"})
        return found

    @property
    def job(self) -> Job:
        found = nouns.find(self.rig.world.store, Job, keys.job(self.run["id"], 0, 0, 0))
        assert found is not None
        return found

    @property
    def container(self) -> dict[str, Any]:
        (machine,) = self.cloud.machines()
        found: dict[str, Any] = machine["container"]
        return found


@pytest.fixture
def plane(tmp_path: Path) -> Plane:
    return Plane(tmp_path)


def test_it_runs_the_jobs_image_with_an_agent_and_nothing_of_the_job(plane: Plane) -> None:
    plane.order(image="python:3.12", env={"KEY": "of-the-job"}, user="1000:7", resources={"shm_size": "2GB"})
    plane.act()
    instance, found = plane.instance, plane.container
    token = bootstrap_token(plane.rig.world.plane.install_key, instance.id, 0)
    assert found["image"] == "python:3.12" and found["command"] == ("/bin/sh", "-c", SCRIPT)
    assert found["env"]["DSTACK_TOKEN"] == token and found["env"]["DSTACK_INSTANCE"] == instance.id
    assert (found["user"], found["shm_mib"], found["privileged"], found["login"]) == ("1000:7", 2048, False, None)
    assert token not in str(found["command"]) and "of-the-job" not in str(found)
    assert plane.cloud.machines()[0]["user_data"] == ""


def test_a_job_without_an_image_gets_the_default_one(plane: Plane) -> None:
    plane.order()
    plane.act()
    assert plane.container["image"] == plane.run["jobs"][0]["job_spec"]["image_name"] != ""


def test_the_registrys_login_goes_to_the_provider_and_into_no_record(plane: Plane) -> None:
    plane.secret("hunter2")
    plane.order(**PRIVATE)
    plane.act()
    assert plane.container["login"] == ["team", "hunter2"]
    assert plane.instance.status is InstanceStatus.provisioning and plane.instance.registry_login == ""
    assert "hunter2" not in plane.instance.model_dump_json() + plane.job.model_dump_json()


@pytest.mark.parametrize(("username", "secret"), [("team", False), ("${{ secrets.registry }}", True)])
def test_a_user_name_from_a_secret_is_marked_as_one(plane: Plane, username: str, secret: bool) -> None:
    plane.secret("robot-7")
    plane.order(**PRIVATE | {"registry_auth": {"username": username, "password": "hunter2"}})
    prepared = Containers(plane.here).container_of(plane.instance)
    assert prepared is not None
    login = RegistryLogin("robot-7" if secret else "team", "hunter2", secret_username=secret)
    assert prepared[1].login == login


def test_a_request_that_is_repeated_is_the_same_though_the_secret_has_changed(plane: Plane) -> None:
    plane.secret("hunter2")
    plane.order(**PRIVATE)
    plane.script.faults.append(Fault("create", "Transient", "before"))
    plane.act()
    instance = plane.instance
    assert (
        instance.status is InstanceStatus.pending
        and instance.registry_login
        and "hunter2" not in instance.registry_login
    )
    plane.secret("changed")
    plane.after(60)
    plane.act()
    assert plane.container["login"] == ["team", "hunter2"]
    assert plane.instance.registry_login == "", "it isn't requested any more"


def test_a_repeated_request_names_the_same_carriers_though_newer_ones_were_made(plane: Plane) -> None:
    plane.order(image="busybox")
    plane.script.faults.append(Fault("create", "Transient", "before"))
    plane.act()
    assert plane.instance.carriers == {"x86": "c-86", "arm": ""}
    plane.carriers = {"x86": "newer", "arm": "newer"}
    plane.after(60)
    plane.act()
    env = plane.container["env"]
    assert (env["DSTACK_CARRIER_X86_SHA256"], env["DSTACK_CARRIER_ARM_SHA256"]) == ("c-86", "")
    assert plane.instance.carriers is None, "it isn't requested any more"


def test_a_purchase_waits_for_the_first_carrier(plane: Plane) -> None:
    plane.carriers = None
    plane.order(image="busybox")
    plane.act()
    assert plane.cloud.resources() == [] and plane.instance.status is InstanceStatus.pending
    plane.carriers = {"x86": "c-86", "arm": "c-arm"}
    plane.after(10)
    plane.act()
    assert plane.container["env"]["DSTACK_CARRIER_X86_SHA256"] == "c-86"


def test_shared_memory_is_bought_in_whole_mebibytes_and_is_what_the_agent_looks_for(plane: Plane) -> None:
    plane.order(image="busybox", resources={"shm_size": "0.30001GB"})
    plane.act()
    task = agent_task(plane.job, Reader(plane.rig.world.store).job_spec(plane.job), plane.instance, "main")
    assert 0 < task["shm_bytes"] <= plane.container["shm_mib"] << 20 == 308 << 20


def test_a_container_is_never_bought_without_a_disk_of_its_job(plane: Plane) -> None:
    plane.order(image="busybox")
    job = plane.job
    assert job.assignment is not None
    lost = Mounted(id="gone", name="weights", path="/weights")
    plane.rig.world.store.commit([nouns.put(job.with_(assignment=job.assignment.with_(volumes=(lost,))))])
    plane.act()
    assert (plane.job.status, plane.job.reason) == ("failed", "creating_container_error")
    assert plane.job.message == "The disk of volume weights, to be mounted at /weights, is gone."
    assert plane.cloud.resources() == []


@pytest.mark.parametrize("repeated", [False, True])
def test_a_login_whose_secret_is_gone_ends_the_job_unless_it_was_requested_with_it(
    plane: Plane, repeated: bool
) -> None:
    plane.secret("hunter2")
    plane.order(**PRIVATE)
    if repeated:
        plane.script.faults.append(Fault("create", "Transient", "before"))
        plane.act()
        plane.after(60)
    plane.rig.ok("P/secrets/delete", {"secrets_names": ["registry"]})
    plane.act()
    if repeated:
        assert plane.container["login"] == ["team", "hunter2"]
        return
    assert (plane.job.status, plane.job.reason) == ("failed", "creating_container_error")
    assert plane.job.message.endswith(
        "no secret `registry`, to which the login for the registry of example.com/team/trainer:1 refers. "
        "Set it with `dstack secret set registry <value>`."
    )
    assert plane.cloud.resources() == []


def test_nothing_is_bought_for_a_job_that_has_ended(plane: Plane) -> None:
    plane.order()
    plane.rig.ok("P/runs/stop", {"runs_names": ["work"], "abort": True})
    plane.decide()
    plane.act()
    assert plane.cloud.resources() == []
    plane.after(60)
    plane.act()
    plane.after(60)
    plane.act()
    assert plane.job.status == "aborted" and plane.cloud.resources() == []


@pytest.mark.parametrize("ending", ["exits", "can't be pulled"])
def test_a_container_that_ends_before_its_agent_joined_ends_the_job_and_no_other_is_bought(
    plane: Plane, ending: str
) -> None:
    plane.script.bad_images = ["example.com/bad"] if ending == "can't be pulled" else []
    plane.order(image="example.com/bad")
    plane.act()
    if ending == "exits":
        plane.cloud.exit(plane.instance.id, "it exits with status 127: /bin/sh: not found")
    plane.after(30)
    plane.act()
    assert (plane.job.status, plane.job.reason) == ("failed", "creating_container_error")
    assert ("status 127" if ending == "exits" else "can't be pulled") in plane.job.message
    plane.act()
    plane.after(30)
    plane.act()
    assert plane.cloud.resources() == [], "what failed is paid for until it is released"


@pytest.mark.slow
def test_an_image_that_never_starts_is_retried_less_and_less_often_and_not_for_ever(plane: Plane) -> None:
    """A container that failed to start is no machine that the job had: `retry` counts on from the submission."""
    plane.script.bad_images = ["example.com/bad"]
    plane.order(image="example.com/bad", retry={"on_events": ["error"], "duration": "30m"})
    for _ in range(120):
        plane.act()
        plane.after(30)
    assert (plane.run["status"], plane.run["termination_reason"]) == ("failed", "retry_limit_exceeded")
    assert 3 < len(plane.run["jobs"][0]["job_submissions"]) < 15
    assert plane.cloud.resources() == []


ITS_OWN = {"image": "example.com/team/app:1", "commands": []}


def test_a_job_without_commands_runs_what_its_image_runs(plane: Plane) -> None:
    plane.secret("hunter2")
    plane.order(**PRIVATE, commands=[])
    plane.act()
    login = RegistryLogin("team", "hunter2")
    assert plane.looked_up == [("example.com/team/trainer:1", login, "x86")]
    assert "/entry" not in str(plane.container), "the provider isn't told what the job runs"
    task = agent_task(plane.job, Reader(plane.rig.world.store).job_spec(plane.job), plane.instance, "main")
    assert (task["commands"], task["shell"]) == (["/entry", "a b"], None)


def test_a_repeated_request_runs_the_same_though_the_image_has_changed(plane: Plane) -> None:
    plane.order(**ITS_OWN)
    plane.script.faults.append(Fault("create", "Transient", "before"))
    plane.act()
    plane.image_command = ("/other",)
    plane.after(60)
    plane.act()
    assert plane.instance.status is InstanceStatus.provisioning and plane.instance.image_command == ("/entry", "a b")
    assert len(plane.looked_up) == 1


def test_a_job_with_commands_needs_no_registry(plane: Plane) -> None:
    plane.image_command = ContainerFailed("nobody should ask")
    plane.order(image="example.com/team/app:1")
    plane.act()
    assert plane.looked_up == [] and plane.container


def test_an_image_that_cant_be_looked_up_ends_the_job_with_the_reason(plane: Plane) -> None:
    plane.image_command = ContainerFailed("The image example.com/team/app:1 doesn't exist in example.com.")
    plane.order(**ITS_OWN)
    plane.act()
    assert (plane.job.status, plane.job.reason) == ("failed", "creating_container_error")
    assert plane.job.message == "The image example.com/team/app:1 doesn't exist in example.com."
    assert plane.cloud.resources() == []


def test_a_registry_that_is_busy_is_asked_again(plane: Plane) -> None:
    plane.image_command = Throttled("example.com answers 429", retry_after=20.0)
    plane.order(**ITS_OWN)
    plane.act()
    assert plane.cloud.resources() == [] and plane.instance.status is InstanceStatus.pending
    plane.image_command = ("/entry",)
    plane.after(20)
    plane.act()
    assert plane.instance.image_command == ("/entry",) and plane.container

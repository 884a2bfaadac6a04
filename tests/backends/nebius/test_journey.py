"""A job on a machine of Nebius, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.nebius.facts import FACTS
from chalicelib.backends.registry import Row, registered
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Offer
from tests.backends.fakes.books import Resource
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.provider import InProcess, NebiusProvider, config
from tests.scenarios.stages import MAIN, Virtual
from tests.usecases.cluster import FACTS as AGENT_FACTS
from tests.usecases.cluster import Agent
from tests.world.embedded import ConfiguredSite

FLEET = "type: fleet\nname: pool\nnodes: 0..2\nbackends: [nebius-fake]\nidle_duration: 5m\nspot_policy: auto\n"
TASK = """\
type: task
name: work
image: ubuntu
commands: [python train.py]
backends: [nebius-fake]
resources: {gpu: H100:1}
"""
SPOT = "spot_policy: spot\nretry: {on_events: [interruption, no-capacity], duration: 1h}\n"


class FakeConfig(NebiusBackendConfig):
    """Nebius's, under another name."""

    type: Literal["nebius-fake"] = Field(description="`nebius-fake`.")  # type: ignore[assignment]


class FakeBackend(NebiusBackend):
    facts = FACTS.with_(name="nebius-fake")
    accounts: ClassVar[list[Nebius]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        (fake,) = self.accounts
        super().__init__(config, NebiusClient(config.creds, fake.now, InProcess(fake)), fake.now)

    def offers(self) -> Sequence[Offer]:
        return [offer.with_(backend="nebius-fake") for offer in super().offers()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    with registered("nebius-fake", Row(f"{__name__}:FakeConfig", backend=f"{__name__}:FakeBackend")):
        site = ConfiguredSite("nebius", tmp_path / "server")
        FakeBackend.accounts.append(Nebius(site.time.now))
        found = Virtual(site, tmp_path, MAIN)
        creds = config().model_dump(mode="json", exclude_none=True)["creds"] | {
            "private_key_content": config().creds.private_key_content,
            "service_account_id": config().creds.service_account_id,
            "public_key_id": config().creds.public_key_id,
        }
        (found.home / "nebius.yml").write_text(json.dumps({"type": "nebius-fake", "creds": creds}))
        done(found, "backend", "add", "-f", "nebius.yml", "-y")
        site.root.refresh_accounts()
        yield found
        FakeBackend.accounts.clear()
        site.close()


def done(stage: Virtual, *words: str) -> str:
    text, code = stage.dstack(list(words))
    assert code == 0, text
    return text


def applied(stage: Virtual, name: str, text: str) -> str:
    (stage.home / f"{name}.dstack.yml").write_text(text)
    return done(stage, "apply", "-f", f"{name}.dstack.yml", "-y", "-d")


def runs_on(stage: Virtual, machine: Resource) -> None:
    """The agent joins with what is in the machine's script, and its job runs."""
    _, instance, token = read_user_data(machine.facts["spec"]["cloud_init_user_data"])
    world: Any = SimpleNamespace(plane=stage.site.root.plane)
    at = stage.site.time.now()
    agent = Agent(world, instance, credential=token)
    agent.sync(facts=AGENT_FACTS)
    stage.site.time.run(stage.site.time.at + MINUTE)
    (task,) = agent.sync()["tasks"]
    agent.sync({"id": task["id"], "state": "running", "at": at, "username": "root", "working_dir": "/w"})
    stage.site.time.run(stage.site.time.at + SECOND)


def machines(fake: Nebius) -> list[Resource]:
    return [each for each in fake.books.existing("vm") if each.state(fake.now()) != "DELETING"]


@pytest.mark.slow
def test_a_job_whose_spot_machine_is_taken_back_begins_anew_and_leaves_nothing_behind(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK + SPOT)
    assert "gpu-h100-sxm 1gpu-16vcpu-200gb" in plan and "$1.337" in plan, plan
    stage.until("its machine", lambda: bool(machines(fake)))
    (machine,) = machines(fake)
    stage.until("its start", lambda: machine.state(fake.now()) == "RUNNING")
    runs_on(stage, machine)
    assert stage.ask("runs/get", {"run_name": "work"})["status"] == "running"
    machine.goes(fake.now(), (0, "STOPPING"), (MINUTE, "STOPPED"))
    stage.until("another", lambda: any(each is not machine for each in machines(fake)))
    ended = stage.ask("runs/get", {"run_name": "work"})["jobs"][0]["job_submissions"][0]
    assert ended["termination_reason"] == "interrupted_by_no_capacity"
    assert "the cloud reclaimed the spot machine" in ended["termination_reason_message"]
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: fake.billed() == 0 and not NebiusProvider(fake).existing())


@pytest.mark.slow
def test_what_is_noticed_late_to_be_missing_is_bought_elsewhere(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", FLEET)
    fake.short.add("cpu-d3 4vcpu-16gb")
    applied(stage, "task", TASK.replace("gpu: H100:1", "cpu: 2.., memory: 8GB.."))
    stage.until("the first", lambda: bool(fake.books.made("vm")))
    stage.until(
        "another kind",
        lambda: [each for each in machines(fake) if each.facts["spec"]["resources"]["preset"] == "8vcpu-32gb"] != [],
    )
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: fake.billed() == 0 and not NebiusProvider(fake).existing())


@pytest.mark.slow
def test_a_task_on_two_nodes_gets_a_gpu_cluster_and_leaves_nothing_behind(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", f"{FLEET}placement: cluster\n")
    applied(stage, "task", TASK.replace("gpu: H100:1", "gpu: H100:8") + "nodes: 2\n")
    stage.until("its machines", lambda: len(machines(fake)) == 2)
    (cluster,) = fake.books.existing("cluster")
    assert [each.facts["spec"]["gpu_cluster"]["id"] for each in machines(fake)] == [cluster.id] * 2
    assert cluster.facts["spec"]["infiniband_fabric"] == "fabric-2"
    done(stage, "stop", "work", "-y")
    done(stage, "fleet", "delete", "pool", "-y")
    stage.until("the end of all", lambda: fake.billed() == 0 and not NebiusProvider(fake).existing())

"""A job on a machine of Google's, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.facts import FACTS
from chalicelib.backends.gcp.specs import GCPVolumeConfiguration
from chalicelib.backends.registry import Row
from chalicelib.domain.offers import Offer
from tests.backends.fakes.books import Resource
from tests.backends.gcp.fake import PROJECT, Google
from tests.backends.gcp.instances import EXHAUSTED
from tests.backends.gcp.provider import KEY, GcpProvider, clients_of
from tests.backends.journeys import agent_of, applied, done, run_of, runs_job, sold_as, staged
from tests.scenarios.stages import Virtual
from tests.usecases.cluster import FACTS as FACTS_OF_AGENTS

FLEET = "type: fleet\nname: pool\nnodes: 0..2\nbackends: [google-fake]\nidle_duration: 5m\nspot_policy: auto\n"
TASK = """\
type: task
name: work
image: ubuntu
commands: [python train.py]
backends: [google-fake]
resources: {gpu: L4:1}
"""
SPOT = "spot_policy: spot\nretry: {on_events: [interruption, no-capacity], duration: 1h}\n"
CREDS = {"type": "service_account", "data": json.dumps(KEY)}
BACKEND = json.dumps({"type": "google-fake", "project_id": PROJECT, "creds": CREDS, "vpc_name": "training"})
VOLUME = "type: volume\nname: data\nbackend: google-fake\nregion: us-central1\nsize: 20GB\n"


class FakeConfig(GCPBackendConfig):
    """Google's, under another name."""

    type: Literal["google-fake"] = Field(description="`google-fake`.")  # type: ignore[assignment]


class FakeVolume(GCPVolumeConfiguration):
    backend: Literal["google-fake"] = Field(default="google-fake", description="`google-fake`.")  # type: ignore[assignment]


class FakeBackend(GcpBackend):
    facts = FACTS.with_(name="google-fake")
    accounts: ClassVar[list[Google]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        (fake,) = self.accounts
        super().__init__(config, clients_of(fake), fake.now)

    def offers(self) -> Sequence[Offer]:
        return sold_as("google-fake", super().offers())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", volume=f"{__name__}:FakeVolume", backend=f"{__name__}:FakeBackend")
    with staged("google-fake", row, tmp_path, BACKEND, FakeBackend.accounts, Google) as found:
        yield found


def boot_script(machine: Resource) -> str:
    items = {each["key"]: each["value"] for each in machine.facts["body"]["metadata"]["items"]}
    return str(items["user-data"])


def machines(fake: Google) -> list[Resource]:
    return [each for each in fake.books.existing("vm") if each.state(fake.now()) != "STOPPING"]


def nothing_left(fake: Google) -> bool:
    return not GcpProvider(fake).existing() and not list(fake.books.existing("policy"))


@pytest.mark.slow
def test_a_job_whose_spot_machine_is_taken_back_begins_anew_and_leaves_nothing_behind(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK + SPOT)
    assert "g2-standard-4" in plan and "us-central1" in plan and "$0.2989" in plan, plan
    stage.until("its machine", lambda: bool(machines(fake)))
    (machine,) = machines(fake)
    assert "--notices gce" in boot_script(machine), "so that the agent polls the metadata service"
    stage.until("its start", lambda: machine.state(fake.now()) == "RUNNING")
    runs_job(stage, agent_of(stage, boot_script(machine)))
    fake.preempted(machine)
    stage.until("another", lambda: any(each is not machine for each in machines(fake)))
    ended = run_of(stage)["jobs"][0]["job_submissions"][0]
    assert ended["termination_reason"] == "interrupted_by_no_capacity"
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: nothing_left(fake))


@pytest.mark.slow
def test_what_is_noticed_late_to_be_missing_is_bought_elsewhere(stage: Virtual) -> None:
    """A machine that was accepted, and that vanishes half a minute later."""
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", FLEET)
    fake.short["e2-standard-4"] = EXHAUSTED
    applied(stage, "task", TASK.replace("gpu: L4:1", "cpu: 4.., memory: 16GB.."))
    stage.until("the first", lambda: bool(machines(fake)))
    stage.until(
        "another", lambda: bool(machines(fake)) and not fake.short and len(fake.calls_of("instances.insert")) > 1
    )
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: nothing_left(fake))


@pytest.mark.slow
def test_a_task_on_two_nodes_gets_a_placement_policy_and_leaves_nothing_behind(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", f"{FLEET}placement: cluster\n")
    applied(stage, "task", TASK + "nodes: 2\n")
    stage.until("its machines", lambda: len(machines(fake)) == 2)
    (policy,) = fake.books.existing("policy")
    assert [fake.in_policy(policy.facts["name"])] == [machines(fake)]
    done(stage, "stop", "work", "-y")
    done(stage, "fleet", "delete", "pool", "-y")
    stage.until("the end of all", lambda: nothing_left(fake))


@pytest.mark.slow
def test_a_volume_is_attached_to_the_machine_of_its_job(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "volume", VOLUME)
    stage.until("the volume", lambda: stage.ask("volumes/get", {"name": "data"})["status"] == "active")
    (disk,) = fake.books.existing("disk")
    applied(stage, "fleet", FLEET)
    applied(stage, "task", f"{TASK}volumes: ['data:/data']\n")
    stage.until("its machine", lambda: bool(machines(fake)))
    (machine,) = machines(fake)
    assert machine.facts["zone"] == disk.facts["zone"]
    stage.until("its start", lambda: machine.state(fake.now()) == "RUNNING")
    agent_of(stage, boot_script(machine)).sync(facts=FACTS_OF_AGENTS)
    stage.until("the disk on it", lambda: machine.number in disk.facts["on"])
    done(stage, "stop", "work", "-y")
    stage.until("its detachment", lambda: not stage.ask("volumes/get", {"name": "data"})["attachments"])
    done(stage, "delete", "-f", "volume.dstack.yml", "-y")
    stage.until("the end of all", lambda: nothing_left(fake))

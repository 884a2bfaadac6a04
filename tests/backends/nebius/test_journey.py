"""A job on a machine of Nebius, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.nebius.facts import FACTS
from chalicelib.backends.registry import Row
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offers import Offer
from tests.backends.fakes.books import Resource
from tests.backends.journeys import agent_of, applied, done, run_of, runs_job, sold_as, staged
from tests.backends.nebius.fake import ACCOUNT, KEY_ID, Nebius, private_key
from tests.backends.nebius.provider import InProcess, NebiusProvider
from tests.scenarios.stages import Virtual

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
        return sold_as("nebius-fake", super().offers())


def backend() -> str:
    creds = {
        "type": "service_account",
        "service_account_id": ACCOUNT,
        "public_key_id": KEY_ID,
        "private_key_content": private_key(),
    }
    return json.dumps({"type": "nebius-fake", "creds": creds})


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", backend=f"{__name__}:FakeBackend")
    with staged("nebius-fake", row, tmp_path, backend(), FakeBackend.accounts, Nebius) as found:
        yield found


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
    runs_job(stage, agent_of(stage, machine.facts["spec"]["cloud_init_user_data"]))
    machine.goes(fake.now(), (0, "STOPPING"), (MINUTE, "STOPPED"))
    stage.until("another", lambda: any(each is not machine for each in machines(fake)))
    ended = run_of(stage)["jobs"][0]["job_submissions"][0]
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

"""A fleet and a job in Azure, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.azure.backend import AzureBackend
from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.config import AzureBackendConfig
from chalicelib.backends.azure.facts import FACTS
from chalicelib.backends.registry import Row, registered
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Offer
from tests.backends.azure.fake import Azure
from tests.backends.azure.fake.api import CLIENT, SECRET, SUBSCRIPTION, TENANT
from tests.backends.azure.fake.shop import stock
from tests.backends.azure.provider import AzureProvider
from tests.backends.fakes.books import Resource
from tests.backends.fakes.transport import sender
from tests.scenarios.stages import MAIN, Virtual
from tests.usecases.cluster import FACTS as AGENT_FACTS
from tests.usecases.cluster import Agent
from tests.world.embedded import ConfiguredSite

BACKEND = f"""\
type: azure-fake
subscription_id: {SUBSCRIPTION}
tenant_id: {TENANT}
creds: {{type: client, client_id: {CLIENT}, client_secret: {SECRET}}}
regions: [westeurope]
"""
FLEET = """\
type: fleet
name: pool
nodes: 0..2
idle_duration: 5m
backends: [azure-fake]
spot_policy: auto
resources: {gpu: T4}
"""
TASK = """\
type: task
name: work
commands: [python train.py]
backends: [azure-fake]
resources: {gpu: T4}
spot_policy: spot
retry: {on_events: [interruption, no-capacity], duration: 1h}
"""


class FakeConfig(AzureBackendConfig):
    """Azure's, under another name."""

    type: Literal["azure-fake"] = Field(description="`azure-fake`.")  # type: ignore[assignment]


class FakeBackend(AzureBackend):
    facts = FACTS.with_(name="azure-fake")
    accounts: ClassVar[list[Azure]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        (fake,) = self.accounts
        super().__init__(config, AzureClient(config, fake.now, send=sender(fake), env={}), fake.now)

    def offers(self) -> Sequence[Offer]:
        return [offer.with_(backend="azure-fake") for offer in super().offers()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    with registered("azure-fake", Row(f"{__name__}:FakeConfig", f"{__name__}:FakeBackend")):
        site = ConfiguredSite("azure", tmp_path / "server")
        FakeBackend.accounts.append(Azure(site.time.now))
        found = Virtual(site, tmp_path, MAIN)
        (found.home / "azure.yml").write_text(BACKEND)
        done(found, "backend", "add", "-f", "azure.yml", "-y")
        found.site.root.refresh_accounts()
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


def joins(stage: Virtual, machine: Resource) -> Callable[..., None]:
    """The agent joins with what the machine was started with, and its job runs. What it reports from then on."""
    script = base64.b64decode(machine.facts["body"]["properties"]["osProfile"]["customData"]).decode()
    assert "--notices scheduled-events" in script
    _, instance, token = read_user_data(script)
    world: Any = SimpleNamespace(plane=stage.site.root.plane)
    agent = Agent(world, instance, credential=token)
    agent.sync(facts=AGENT_FACTS)
    stage.site.time.run(stage.site.time.at + MINUTE)
    (task,) = agent.sync()["tasks"]
    state = {"id": task["id"], "state": "running", "at": stage.site.time.now(), "username": "root", "working_dir": "/w"}

    def reports() -> None:
        agent.sync(state)
        stage.site.time.run(stage.site.time.at + 10 * SECOND)

    reports()
    return reports


@pytest.mark.slow
def test_a_spot_machine_is_bought_taken_back_bought_again_and_released(stage: Virtual) -> None:
    """Though the first zone has nothing, and Azure finds that out later."""
    (fake,) = FakeBackend.accounts
    fake.late_spot = True
    fake.script.limits[stock("westeurope", "1", "Standard_NC4as_T4_v3", spot=True)] = 0
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK)
    assert "Standard_NC4as_T4_v3" in plan and "$0.139" in plan, plan
    stage.until("its machine", lambda: any(each.facts["zones"] == ["3"] for each in fake.books.existing("vm")))
    stage.site.time.run(stage.site.time.at + MINUTE)
    (first,) = [each for each in fake.books.existing("vm") if each.state(fake.now()) == "Succeeded"]
    reports = joins(stage, first)
    assert stage.ask("runs/get", {"run_name": "work"})["status"] == "running"
    fake.evict(first)
    while stage.ask("runs/get", {"run_name": "work"})["status"] == "running" and first in fake.books.existing("vm"):
        reports()
    stage.until("another machine", lambda: any(each is not first for each in fake.books.existing("vm")))
    submissions = stage.ask("runs/get", {"run_name": "work"})["jobs"][0]["job_submissions"]
    ended = [each for each in submissions if each["termination_reason"] == "interrupted_by_no_capacity"]
    assert "was reclaimed" in ended[-1]["termination_reason_message"], submissions
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not AzureProvider(fake).existing())

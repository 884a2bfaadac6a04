"""A fleet and a job in Azure, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.azure.backend import AzureBackend
from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.config import AzureBackendConfig
from chalicelib.backends.azure.facts import FACTS
from chalicelib.backends.registry import Row
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offers import Offer
from tests.backends.azure.fake import Azure
from tests.backends.azure.fake.api import CLIENT, SECRET, SUBSCRIPTION, TENANT
from tests.backends.azure.fake.shop import stock
from tests.backends.azure.provider import AzureProvider
from tests.backends.fakes.books import Resource
from tests.backends.fakes.transport import sender
from tests.backends.journeys import agent_of, applied, done, run_of, runs_job, sold_as, staged
from tests.scenarios.stages import Virtual

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
        return sold_as("azure-fake", super().offers())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", backend=f"{__name__}:FakeBackend")
    with staged("azure-fake", row, tmp_path, BACKEND, FakeBackend.accounts, Azure) as found:
        yield found


def script_of(machine: Resource) -> str:
    return base64.b64decode(machine.facts["body"]["properties"]["osProfile"]["customData"]).decode()


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
    assert "--notices scheduled-events" in script_of(first)
    reports = runs_job(stage, agent_of(stage, script_of(first)))
    fake.evict(first)
    while run_of(stage)["status"] == "running" and first in fake.books.existing("vm"):
        reports()
    stage.until("another machine", lambda: any(each is not first for each in fake.books.existing("vm")))
    submissions = run_of(stage)["jobs"][0]["job_submissions"]
    ended = [each for each in submissions if each["termination_reason"] == "interrupted_by_no_capacity"]
    assert "was reclaimed" in ended[-1]["termination_reason_message"], submissions
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not AzureProvider(fake).existing())

"""A fleet and a job at Lambda, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.lambda_cloud.client import LambdaClient
from chalicelib.backends.lambda_cloud.config import LambdaBackendConfig
from chalicelib.backends.lambda_cloud.facts import FACTS
from chalicelib.backends.registry import Row, registered
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Offer
from tests.backends.fakes.books import Resource
from tests.backends.fakes.script import Rate
from tests.backends.fakes.transport import sender
from tests.backends.lambda_cloud.fake import KEY, LambdaApi, stock
from tests.scenarios.stages import MAIN, Virtual
from tests.usecases.cluster import FACTS as AGENT_FACTS
from tests.usecases.cluster import Agent
from tests.world.embedded import ConfiguredSite

FLEET = "type: fleet\nname: pool\nnodes: 0..2\nidle_duration: 5m\nbackends: [lambda-fake]\nresources: {gpu: A10}\n"
TASK = """\
type: task
name: work
commands: [python train.py]
backends: [lambda-fake]
resources: {gpu: A10}
retry: {on_events: [error], duration: 1h}
"""


class FakeConfig(LambdaBackendConfig):
    """Lambda's, under another name."""

    type: Literal["lambda-fake"] = Field(description="`lambda-fake`.")  # type: ignore[assignment]


class FakeBackend(LambdaBackend):
    facts = FACTS.with_(name="lambda-fake")
    accounts: ClassVar[list[LambdaApi]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        (fake,) = self.accounts
        super().__init__(config, LambdaClient(config.creds.api_key, fake.now, send=sender(fake)), fake.now)

    def offers(self) -> Sequence[Offer]:
        return [offer.with_(backend="lambda-fake") for offer in super().offers()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    with registered("lambda-fake", Row(f"{__name__}:FakeConfig", f"{__name__}:FakeBackend")):
        site = ConfiguredSite("lambda", tmp_path / "server")
        FakeBackend.accounts.append(LambdaApi(site.time.now))
        found = Virtual(site, tmp_path, MAIN)
        (found.home / "lambda.yml").write_text(f"type: lambda-fake\ncreds: {{type: api_key, api_key: {KEY}}}\n")
        done(found, "backend", "add", "-f", "lambda.yml", "-y")
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


def joins(stage: Virtual, machine: Resource) -> Callable[[], None]:
    """The agent joins with what the machine was started with, and its job runs. What it reports from then on."""
    _, instance, token = read_user_data(machine.facts["request"]["user_data"])
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
def test_a_machine_is_bought_taken_back_bought_again_and_released(stage: Virtual) -> None:
    """Though Lambda allows one launch in twelve seconds, and the first region has nothing."""
    (fake,) = FakeBackend.accounts
    fake.script.rates = {"launchInstance": Rate(1, 12 * SECOND)}
    fake.script.limits[stock("gpu_1x_a10", "us-east-1")] = 0
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK)
    assert "gpu_1x_a10" in plan and "$1.29" in plan, plan
    stage.until("its machine", lambda: bool(list(fake.books.existing("vm"))))
    (first,) = fake.books.existing("vm")
    assert first.facts["region"] != "us-east-1"
    stage.site.time.run(stage.site.time.at + fake.boot)
    reports = joins(stage, first)
    assert stage.ask("runs/get", {"run_name": "work"})["status"] == "running"
    first.goes(fake.now(), (0, "preempted"))
    while stage.ask("runs/get", {"run_name": "work"})["status"] == "running":
        reports()
    stage.until("its end", lambda: first not in fake.books.existing())
    stage.until("another machine", lambda: bool(list(fake.books.existing("vm"))))
    submissions = stage.ask("runs/get", {"run_name": "work"})["jobs"][0]["job_submissions"]
    assert "was taken back by Lambda" in submissions[0]["termination_reason_message"], submissions
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not list(fake.books.existing("vm")))
    assert fake.billed() == 0.0

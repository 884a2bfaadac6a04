"""A fleet and a job at TensorDock, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.registry import Row, registered
from chalicelib.backends.tensordock.backend import TensorDockBackend
from chalicelib.backends.tensordock.client import TensorDockClient
from chalicelib.backends.tensordock.config import TensorDockBackendConfig
from chalicelib.backends.tensordock.facts import FACTS
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Offer
from tests.backends.fakes.books import Resource
from tests.backends.fakes.transport import sender
from tests.backends.tensordock.fake import PLACES, TOKEN, TensorDock, stock
from tests.scenarios.stages import MAIN, Virtual
from tests.usecases.cluster import FACTS as AGENT_FACTS
from tests.usecases.cluster import Agent
from tests.world.embedded import ConfiguredSite

US, CANADA, _ = PLACES
RTX = "geforcertx4090-pcie-24gb"
CONFIG = f"type: tensordock-fake\ncreds: {{type: api_key, api_key: authorization, api_token: {TOKEN}}}\n"
FLEET = "type: fleet\nname: pool\nnodes: 0..2\nidle_duration: 5m\nbackends: [tensordock-fake]\n"
TASK = """\
type: task
name: work
commands: [python train.py]
backends: [tensordock-fake]
resources: {gpu: RTX4090}
retry: {on_events: [error], duration: 1h}
"""


class FakeConfig(TensorDockBackendConfig):
    """TensorDock's, under another name."""

    type: Literal["tensordock-fake"] = Field(description="`tensordock-fake`.")  # type: ignore[assignment]


class FakeBackend(TensorDockBackend):
    facts = FACTS.with_(name="tensordock-fake")
    accounts: ClassVar[list[TensorDock]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        (fake,) = self.accounts
        super().__init__(config, TensorDockClient(config.creds.api_token, fake.now, send=sender(fake)), fake.now)

    def offers(self) -> Sequence[Offer]:
        return [offer.with_(backend="tensordock-fake") for offer in super().offers()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    with registered("tensordock-fake", Row(f"{__name__}:FakeConfig", f"{__name__}:FakeBackend")):
        site = ConfiguredSite("tensordock", tmp_path / "server")
        FakeBackend.accounts.append(TensorDock(site.time.now))
        found = Virtual(site, tmp_path, MAIN)
        (found.home / "tensordock.yml").write_text(CONFIG)
        done(found, "backend", "add", "-f", "tensordock.yml", "-y")
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
    files = machine.facts["request"]["cloud_init"]["write_files"]
    _, instance, token = read_user_data(files[-1]["content"])
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
    """Though the cheapest is gone by then, and TensorDock says so with the status 200."""
    (fake,) = FakeBackend.accounts
    fake.ok_refusals, fake.script.limits[stock(US, RTX)] = True, 0
    fake.hidden.add(RTX)
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK)
    assert RTX in plan and "united-states-chubbuck" in plan, plan
    stage.until("its machine", lambda: bool(list(fake.books.existing("vm"))))
    (first,) = fake.books.existing("vm")
    assert first.facts["request"]["location_id"] == CANADA
    stage.site.time.run(stage.site.time.at + 3 * MINUTE)
    reports = joins(stage, first)
    assert stage.ask("runs/get", {"run_name": "work"})["status"] == "running"
    first.goes(fake.now(), (0, "StoppedDisassociated"))
    fake.script.limits.clear()
    while stage.ask("runs/get", {"run_name": "work"})["status"] == "running":
        reports()
    stage.until("its end", lambda: first not in fake.books.existing())
    stage.until("another machine", lambda: bool(list(fake.books.existing("vm"))))
    submissions = stage.ask("runs/get", {"run_name": "work"})["jobs"][0]["job_submissions"]
    assert "its host has taken them back" in submissions[0]["termination_reason_message"], submissions
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not list(fake.books.existing("vm")))
    assert fake.billed() == 0.0

"""A fleet and a job at Lambda, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.lambda_cloud.client import LambdaClient
from chalicelib.backends.lambda_cloud.config import LambdaBackendConfig
from chalicelib.backends.lambda_cloud.facts import FACTS
from chalicelib.backends.registry import Row
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from tests.backends.fakes.script import Rate
from tests.backends.fakes.transport import sender
from tests.backends.journeys import agent_of, applied, done, run_of, runs_job, sold_as, staged
from tests.backends.lambda_cloud.fake import KEY, LambdaApi, stock
from tests.scenarios.stages import Virtual

BACKEND = f"type: lambda-fake\ncreds: {{type: api_key, api_key: {KEY}}}\n"
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
        return sold_as("lambda-fake", super().offers())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", backend=f"{__name__}:FakeBackend")
    with staged("lambda-fake", row, tmp_path, BACKEND, FakeBackend.accounts, LambdaApi) as found:
        yield found


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
    reports = runs_job(stage, agent_of(stage, first.facts["request"]["user_data"]))
    first.goes(fake.now(), (0, "preempted"))
    while run_of(stage)["status"] == "running":
        reports()
    stage.until("its end", lambda: first not in fake.books.existing())
    stage.until("another machine", lambda: bool(list(fake.books.existing("vm"))))
    submissions = run_of(stage)["jobs"][0]["job_submissions"]
    assert "was taken back by Lambda" in submissions[0]["termination_reason_message"], submissions
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not list(fake.books.existing("vm")))
    assert fake.billed() == 0.0

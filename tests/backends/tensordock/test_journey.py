"""A fleet and a job at TensorDock, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.registry import Row
from chalicelib.backends.tensordock.backend import TensorDockBackend
from chalicelib.backends.tensordock.client import TensorDockClient
from chalicelib.backends.tensordock.config import TensorDockBackendConfig
from chalicelib.backends.tensordock.facts import FACTS
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offers import Offer
from tests.backends.fakes.transport import sender
from tests.backends.journeys import agent_of, applied, done, run_of, runs_job, sold_as, staged
from tests.backends.tensordock.fake import PLACES, TOKEN, TensorDock, stock
from tests.scenarios.stages import Virtual

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
        return sold_as("tensordock-fake", super().offers())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", backend=f"{__name__}:FakeBackend")
    with staged("tensordock-fake", row, tmp_path, CONFIG, FakeBackend.accounts, TensorDock) as found:
        yield found


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
    files = first.facts["request"]["cloud_init"]["write_files"]
    reports = runs_job(stage, agent_of(stage, files[-1]["content"]))
    first.goes(fake.now(), (0, "StoppedDisassociated"))
    fake.script.limits.clear()
    while run_of(stage)["status"] == "running":
        reports()
    stage.until("its end", lambda: first not in fake.books.existing())
    stage.until("another machine", lambda: bool(list(fake.books.existing("vm"))))
    submissions = run_of(stage)["jobs"][0]["job_submissions"]
    assert "its host has taken them back" in submissions[0]["termination_reason_message"], submissions
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not list(fake.books.existing("vm")))
    assert fake.billed() == 0.0

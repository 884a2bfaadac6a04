"""A job on a machine of Crusoe, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.crusoe.client import CrusoeClient
from chalicelib.backends.crusoe.config import CrusoeBackendConfig
from chalicelib.backends.crusoe.facts import FACTS
from chalicelib.backends.registry import Row
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Offer
from tests.backends.crusoe.fake import KEY, PROJECT, SECRET, Crusoe, capacity_of
from tests.backends.crusoe.provider import prices
from tests.backends.fakes.books import Resource
from tests.backends.fakes.transport import sender
from tests.backends.journeys import agent_of, applied, done, run_of, runs_job, sold_as, staged
from tests.scenarios.stages import Virtual

FLEET = "type: fleet\nname: pool\nnodes: 0..2\nbackends: [crusoe-fake]\nidle_duration: 5m\n"
TASK = """\
type: task
name: work
image: ubuntu
commands: [python train.py]
backends: [crusoe-fake]
resources: {cpu: 2.., memory: 8GB.., disk: 200GB..}
"""
RETRY = "retry: {on_events: [no-capacity, error], duration: 1h}\n"
BACKEND = (
    f"type: crusoe-fake\nproject_id: {PROJECT}\ncreds: {{type: access_key, access_key: {KEY}, secret_key: {SECRET}}}\n"
)
EAST, ICELAND, CPU = "us-east1-a", "eu-iceland1-a", "c1a.2x"


class FakeConfig(CrusoeBackendConfig):
    """Crusoe's, under another name."""

    type: Literal["crusoe-fake"] = Field(description="`crusoe-fake`.")  # type: ignore[assignment]


class FakeBackend(CrusoeBackend):
    facts = FACTS.with_(name="crusoe-fake")
    accounts: ClassVar[list[tuple[Crusoe, Path]]] = []

    def __init__(self, config: Any, prices_file: object = None) -> None:
        ((fake, folder),) = self.accounts
        client = CrusoeClient(config.creds, config.project_id, fake.now, send=sender(fake), burst=10_000)
        super().__init__(config, client, fake.now, prices(folder))

    def offers(self) -> Sequence[Offer]:
        return sold_as("crusoe-fake", super().offers())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", backend=f"{__name__}:FakeBackend")
    with staged(
        "crusoe-fake", row, tmp_path, BACKEND, FakeBackend.accounts, lambda now: (Crusoe(now), tmp_path)
    ) as found:
        yield found


def machines(fake: Crusoe) -> list[Resource]:
    return [each for each in fake.books.existing("vm") if each.state(fake.now()) != "STATE_DELETING"]


@pytest.mark.slow
def test_a_job_gets_a_machine_and_leaves_nothing_behind(stage: Virtual) -> None:
    ((fake, _),) = FakeBackend.accounts
    fake.making = 15 * SECOND
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK + RETRY)
    assert CPU in plan and "$0.1019" in plan, plan
    stage.until("its machine", lambda: bool(machines(fake)))
    (machine,) = machines(fake)
    stage.until("its start", lambda: machine.state(fake.now()) == "STATE_RUNNING")
    runs_job(stage, agent_of(stage, machine.facts["request"]["startup_script"]))
    machine.goes(fake.now(), (0, "STATE_STOPPED"))  # by Crusoe
    stage.until("another", lambda: any(each is not machine for each in machines(fake)))
    ended = run_of(stage)["jobs"][0]["job_submissions"][0]
    assert ended["termination_reason"] == "instance_unreachable"
    assert "somebody has stopped it, or Crusoe has" in ended["termination_reason_message"]
    stage.until("its end", lambda: machine not in fake.books.existing())
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: fake.billed() == 0 and not list(fake.books.existing("vm")))
    assert not [each for each in fake.books.existing() if each.kind in ("disk", "partition")]


@pytest.mark.slow
def test_where_none_is_left_the_next_location_is_tried(stage: Virtual) -> None:
    ((fake, _),) = FakeBackend.accounts
    applied(stage, "fleet", FLEET)
    first = min(EAST, ICELAND)
    fake.script.limits[capacity_of(first, CPU)] = 0
    applied(stage, "task", TASK)
    stage.until("its machine", lambda: any(each.facts["location"] != first for each in machines(fake)))
    stage.site.time.run(stage.site.time.at + 2 * MINUTE)
    data = [each for each in fake.books.existing("disk") if not each.facts["os"]]
    assert len(data) == 1 and data[0].facts["location"] != first, "the data disk of the first attempt is gone"
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: fake.billed() == 0 and not list(fake.books.existing("vm")))


@pytest.mark.slow
def test_a_task_on_two_nodes_gets_a_partition_and_leaves_nothing_behind(stage: Virtual) -> None:
    ((fake, _),) = FakeBackend.accounts
    applied(stage, "fleet", f"{FLEET}placement: cluster\n")
    task = TASK.replace("cpu: 2.., memory: 8GB.., disk: 200GB..", "gpu: H100:8")
    assert "h100-80gb-sxm-ib.8x" in applied(stage, "task", f"{task}nodes: 2\n")
    stage.until("its machines", lambda: len(machines(fake)) == 2)
    (partition,) = fake.books.existing("partition")
    assert {each.facts["partition"] for each in machines(fake)} == {partition.id}
    done(stage, "stop", "work", "-y")
    done(stage, "fleet", "delete", "pool", "-y")
    stage.until("the end of all", lambda: not [each for each in fake.books.existing() if each.kind != "operation"])

"""A job on a TPU, from its plan to the last resource, through a whole control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.registry import Row, registered
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.instants import MINUTE, SECOND
from tests.backends.fakes.books import Resource
from tests.backends.gcp import test_journey as machines
from tests.backends.gcp.fake import PROJECT, Google
from tests.backends.gcp.provider import KEY
from tests.backends.gcp.test_journey import FLEET, applied, done
from tests.backends.gcp.tpu.fake import NO_ROOM, Tpus, error
from tests.backends.gcp.tpu.provider import TpuProvider, clients
from tests.scenarios.stages import MAIN, Virtual
from tests.usecases.cluster import FACTS as AGENT_FACTS
from tests.usecases.cluster import Agent
from tests.world.embedded import ConfiguredSite

TASK = """\
type: task
name: work
image: ubuntu
commands: [python train.py]
backends: [google-fake]
resources: {gpu: v5litepod-4}
"""
SPOT = "spot_policy: spot\nretry: {on_events: [interruption, no-capacity], duration: 1h}\n"
CHIPS = [
    {"name": "v5litepod-4", "memory_mib": 16 << 10, "vendor": "google", "id": str(number), "driver": "", "bus": ""}
    for number in range(4)
]


class FakeBackend(machines.FakeBackend):
    both: ClassVar[list[tuple[Google, Tpus]]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        ((fake, tpus),) = self.both
        GcpBackend.__init__(self, config, clients(fake, tpus), fake.now)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(
        f"{machines.__name__}:FakeConfig",
        volume=f"{machines.__name__}:FakeVolume",
        backend=f"{__name__}:FakeBackend",
    )
    with registered("google-fake", row):
        site = ConfiguredSite("google-tpu", tmp_path / "server")
        FakeBackend.both.append((Google(site.time.now), Tpus(site.time.now)))
        found = Virtual(site, tmp_path, MAIN)
        creds = {"type": "service_account", "data": json.dumps(KEY)}
        given = {"type": "google-fake", "project_id": PROJECT, "creds": creds, "vpc_name": "training", "tpu": True}
        (found.home / "google.yml").write_text(json.dumps(given))
        done(found, "backend", "add", "-f", "google.yml", "-y")
        site.root.refresh_accounts()
        yield found
        FakeBackend.both.clear()
        site.close()


def slices(fake: Tpus) -> list[Resource]:
    return [each for each in fake.books.existing("vm") if each.state(fake.now()) != "DELETING"]


def runs_on(stage: Virtual, made: Resource) -> dict[str, Any]:
    """The agent joins with what is in the node's metadata, and its job runs; what the agent is told of it."""
    node = made.facts["body"]["tpu"]["nodeSpec"][0]["node"]
    _, instance, token = read_user_data(node["metadata"]["startup-script"])
    world: Any = SimpleNamespace(plane=stage.site.root.plane)
    agent, at = Agent(world, instance, credential=token), stage.site.time.now()
    agent.sync(facts={**AGENT_FACTS, "gpus": CHIPS})
    stage.site.time.run(stage.site.time.at + MINUTE)
    (task,) = agent.sync()["tasks"]
    agent.sync({"id": task["id"], "state": "running", "at": at, "username": "root", "working_dir": "/w"})
    stage.site.time.run(stage.site.time.at + SECOND)
    found: dict[str, Any] = task
    return found


@pytest.mark.slow
def test_a_job_whose_tpu_is_taken_back_begins_anew_and_leaves_nothing_behind(stage: Virtual) -> None:
    ((_, fake),) = FakeBackend.both
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK + SPOT)
    assert "v5litepod-4" in plan and "us-central1" in plan and "$1.9225" in plan, plan
    stage.until("its slice", lambda: bool(slices(fake)))
    (made,) = slices(fake)
    stage.until("its start", lambda: made.state(fake.now()) == "ACTIVE")
    assert runs_on(stage, made)["spec"]["gpus"] in (4, -1), "all chips of the host"
    assert stage.ask("runs/get", {"run_name": "work"})["status"] == "running"
    fake.preempted(made)
    stage.until("another", lambda: any(each is not made for each in slices(fake)))
    ended = stage.ask("runs/get", {"run_name": "work"})["jobs"][0]["job_submissions"][0]
    assert ended["termination_reason"] == "interrupted_by_no_capacity"
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not TpuProvider(fake).existing())


@pytest.mark.slow
def test_a_request_that_failed_is_deleted_and_another_zone_is_tried(stage: Virtual) -> None:
    """It would count against the quota for ever."""
    ((_, fake),) = FakeBackend.both
    applied(stage, "fleet", FLEET)
    fake.short["v5litepod-4"] = error("RESOURCE_EXHAUSTED", NO_ROOM.format("us-central1-a"))
    applied(stage, "task", TASK)
    stage.until("the first", lambda: bool(slices(fake)))
    (first,) = slices(fake)
    stage.until("another", lambda: any(each is not first for each in slices(fake)))
    (second,) = (each for each in slices(fake) if each is not first)
    assert first.facts["zone"] != second.facts["zone"]
    assert first.facts["zone"].startswith("us-central1-") and second.facts["zone"].startswith("us-central1-")
    stage.until("the end of the first", lambda: first.state(fake.now()) is None)
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not TpuProvider(fake).existing())

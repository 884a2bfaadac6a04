"""A job in a pod of Runpod, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.registry import Row, registered
from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.runpod.client import Client
from chalicelib.backends.runpod.config import RunpodBackendConfig
from chalicelib.backends.runpod.facts import FACTS
from chalicelib.backends.runpod.specs import RunpodVolumeConfiguration
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from tests.backends.fakes.books import Resource
from tests.backends.fakes.transport import sender
from tests.backends.runpod.fake import KEY, Runpod
from tests.scenarios.stages import MAIN, Virtual
from tests.usecases.cluster import FACTS as AGENT_FACTS
from tests.usecases.cluster import Agent
from tests.world.embedded import ConfiguredSite

FLEET = "type: fleet\nname: pool\nnodes: 0..\nbackends: [runpod-fake]\n"
TASK = """\
type: task
name: work
image: ubuntu
registry_auth: {username: team, password: pa55}
commands: [python train.py]
backends: [runpod-fake]
resources: {gpu: H100:2}
"""


class FakeConfig(RunpodBackendConfig):
    """Runpod's, under another name."""

    type: Literal["runpod-fake"] = Field(description="`runpod-fake`.")  # type: ignore[assignment]


class FakeVolume(RunpodVolumeConfiguration):
    backend: Literal["runpod-fake"] = Field(default="runpod-fake", description="`runpod-fake`.")  # type: ignore[assignment]


class FakeBackend(RunpodBackend):
    facts = FACTS.with_(name="runpod-fake")
    accounts: ClassVar[list[Runpod]] = []

    def __init__(self, config: Any, prices: object = None) -> None:
        (fake,) = self.accounts
        sent = sender(fake)
        super().__init__(config, Client(config.creds.api_key, fake.now, send=sent, listen=sent, burst=10_000), fake.now)

    def offers_for(self, request: OfferRequest) -> Sequence[Offer]:
        return [offer.with_(backend="runpod-fake") for offer in super().offers_for(request)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", volume=f"{__name__}:FakeVolume", backend=f"{__name__}:FakeBackend")
    with registered("runpod-fake", row):
        site = ConfiguredSite("runpod", tmp_path / "server")
        FakeBackend.accounts.append(Runpod(site.time.now))
        found = Virtual(site, tmp_path, MAIN)
        added(found)
        yield found
        FakeBackend.accounts.clear()
        site.close()


def added(stage: Virtual, regions: str = "[US-KS-2]") -> None:
    creds = f"type: runpod-fake\ncreds: {{type: api_key, api_key: {KEY}}}\nregions: {regions}\n"
    (stage.home / "runpod.yml").write_text(creds)
    done(stage, "backend", "add", "-f", "runpod.yml", "-y")
    stage.site.root.refresh_accounts()


def done(stage: Virtual, *words: str) -> str:
    text, code = stage.dstack(list(words))
    assert code == 0, text
    return text


def applied(stage: Virtual, name: str, text: str) -> str:
    (stage.home / f"{name}.dstack.yml").write_text(text)
    return done(stage, "apply", "-f", f"{name}.dstack.yml", "-y", "-d")


def runs_in(stage: Virtual, pod: Resource) -> None:
    """The agent joins with what is in the pod's environment, and its job runs."""
    env, at = pod.facts["request"]["env"], stage.site.time.now()
    world: Any = SimpleNamespace(plane=stage.site.root.plane)
    agent = Agent(world, env["DSTACK_INSTANCE"], credential=env["DSTACK_TOKEN"])
    agent.sync(facts={**AGENT_FACTS, "runtimes": ["inside"], "isolation": {"inside": "machine"}})
    stage.site.time.run(stage.site.time.at + MINUTE)
    (task,) = agent.sync()["tasks"]
    agent.sync({"id": task["id"], "state": "running", "at": at, "username": "root", "working_dir": "/w"})
    stage.site.time.run(stage.site.time.at + SECOND)


@pytest.mark.slow
def test_a_job_gets_a_pod_and_leaves_nothing_behind(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", FLEET)
    plan = applied(stage, "task", TASK)
    assert "NVIDIA H100 80GB HBM3" in plan and "US-KS-2" in plan and "$5.38" in plan, plan
    stage.until("its pod", lambda: bool(list(fake.books.existing("vm"))))
    (pod,), (login,) = fake.books.existing("vm"), fake.books.existing("registry")
    body = pod.facts["request"]
    assert body["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 2} and body["registry"] == login.id
    assert body["disk"] == 100 and login.facts["password"] == "pa55"
    stage.site.time.run(stage.site.time.at + MINUTE)
    added(stage, "[US-KS-2, EU-SE-1]")  # a change that would lose sight of a pod is refused
    done(stage, "stop", "work", "-y")
    stage.until("its end", lambda: not list(fake.books.existing()))


@pytest.mark.slow
def test_a_job_whose_image_cant_be_pulled_says_so_and_isnt_billed_for_long(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    fake.start = fake.run = 10**15
    applied(stage, "fleet", FLEET)
    applied(stage, "task", TASK)
    stage.until("its pod", lambda: bool(list(fake.books.existing("vm"))))
    next(fake.books.existing("vm")).facts["log"].append("error pulling image: manifest unknown")
    stage.until("its end", lambda: stage.ask("runs/get", {"run_name": "work"})["status"] == "failed")
    run = stage.ask("runs/get", {"run_name": "work"})
    assert "manifest unknown" in str(run["jobs"][0]["job_submissions"][-1]), run
    stage.until("the end of its pod", lambda: not list(fake.books.existing()))


@pytest.mark.slow
def test_a_job_whose_spot_pod_is_taken_back_was_interrupted_and_begins_anew_in_another(stage: Virtual) -> None:
    """With an existing volume, which its owner has offered to the project."""
    (fake,) = FakeBackend.accounts
    theirs = fake.books.add("volume", (0, "there"), name="imagenet", size=50, dataCenter="US-KS-2")
    volume = f"type: volume\nname: images\nbackend: runpod-fake\nregion: US-KS-2\nvolume_id: {theirs.id}\n"
    applied(stage, "volume", volume)
    stage.until("its refusal", lambda: stage.ask("volumes/get", {"name": "images"})["status"] == "failed")
    refusal = stage.ask("volumes/get", {"name": "images"})["status_message"]
    assert "add dstack-projects=main to its name" in refusal, refusal
    done(stage, "delete", "-f", "volume.dstack.yml", "-y")
    theirs.facts["name"] = "imagenet dstack-projects=main"
    applied(stage, "volume", volume)
    stage.until("its registration", lambda: stage.ask("volumes/get", {"name": "images"})["status"] == "active")
    applied(stage, "fleet", f"{FLEET}spot_policy: auto\n")
    retry = "retry: {on_events: [interruption], duration: 1h}\n"
    spot = f"spot_policy: spot\n{retry}volumes: ['images:/images']\n"
    plan = applied(stage, "task", TASK + spot)
    assert "$2.69" in plan, plan
    stage.until("its pod", lambda: bool(list(fake.books.existing("vm"))))
    (first,) = fake.books.existing("vm")
    assert first.facts["request"]["mounts"] == {"network": [{"volumeId": theirs.id, "path": "/images"}]}
    stage.site.time.run(stage.site.time.at + MINUTE)
    runs_in(stage, first)
    assert stage.ask("runs/get", {"run_name": "work"})["status"] == "running"
    first.goes(fake.now(), (0, "EXITED"))
    stage.until("its end", lambda: first not in fake.books.existing())
    stage.until("another pod", lambda: bool(list(fake.books.existing("vm"))))
    ended, _ = stage.ask("runs/get", {"run_name": "work"})["jobs"][0]["job_submissions"]
    assert ended["termination_reason"] == "interrupted_by_no_capacity"
    assert "a spot pod has to make way" in ended["termination_reason_message"]
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: list(fake.books.existing()) == [theirs])


@pytest.mark.slow
def test_a_task_on_two_nodes_gets_a_cluster_and_leaves_nothing_behind(stage: Virtual) -> None:
    (fake,) = FakeBackend.accounts
    applied(stage, "fleet", f"{FLEET}placement: cluster\n")
    task = TASK.replace("registry_auth: {username: team, password: pa55}\n", "nodes: 2\n").replace("H100:2", "H100:8")
    assert "$43.04 an hour" in applied(stage, "task", task)
    stage.until("its cluster", lambda: bool(list(fake.books.existing("cluster"))))
    (cluster,) = fake.books.existing("cluster")
    assert cluster.facts["request"]["compute"]["podCount"] == 2
    stage.site.time.run(stage.site.time.at + MINUTE)
    assert len(list(fake.books.existing("vm"))) == 2
    done(stage, "stop", "work", "-y")
    stage.until("its end", lambda: not list(fake.books.existing()))

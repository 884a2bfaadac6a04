"""A job in a pod of Runpod, from `dstack backend add` to the last resource, through a whole control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from chalicelib.backends.registry import Row
from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.runpod.client import Client
from chalicelib.backends.runpod.config import RunpodBackendConfig
from chalicelib.backends.runpod.facts import FACTS
from chalicelib.backends.runpod.specs import RunpodVolumeConfiguration
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from tests.backends.fakes.transport import sender
from tests.backends.journeys import INSIDE, add_backend, agent_with, applied, done, run_of, runs_job, sold_as, staged
from tests.backends.runpod.fake import KEY, Runpod
from tests.scenarios.stages import Virtual

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
        return sold_as("runpod-fake", super().offers_for(request))


def backend(regions: str = "[US-KS-2]") -> str:
    return f"type: runpod-fake\ncreds: {{type: api_key, api_key: {KEY}}}\nregions: {regions}\n"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Virtual]:
    row = Row(f"{__name__}:FakeConfig", volume=f"{__name__}:FakeVolume", backend=f"{__name__}:FakeBackend")
    with staged("runpod-fake", row, tmp_path, backend(), FakeBackend.accounts, Runpod) as found:
        yield found


@pytest.mark.slow
def test_its_offers_are_listed(stage: Virtual) -> None:
    """Clients ask with a task that runs as root, and a pod has its image's user."""
    for flags, key in (("-b", "runpod-fake"), "offers"), (("--group-by", "gpu,backend"), "gpus"):
        (found, *_) = json.loads(done(stage, "offer", *flags, "--gpu", "H100:2", "--json"))[key]
        assert found["backend"] == "runpod-fake"


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
    add_backend(stage, backend("[US-KS-2, EU-SE-1]"))  # a change that would lose sight of a pod is refused
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
    stage.until("its end", lambda: run_of(stage)["status"] == "failed")
    run = run_of(stage)
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
    env = first.facts["request"]["env"]
    runs_job(stage, agent_with(stage, env["DSTACK_INSTANCE"], env["DSTACK_TOKEN"]), INSIDE)
    first.goes(fake.now(), (0, "EXITED"))
    stage.until("its end", lambda: first not in fake.books.existing())
    stage.until("another pod", lambda: bool(list(fake.books.existing("vm"))))
    ended, _ = run_of(stage)["jobs"][0]["job_submissions"]
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

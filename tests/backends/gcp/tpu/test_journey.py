"""A job on a TPU, from its plan to the last resource, through a whole control plane."""

from __future__ import annotations

import json
import re
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
NODES = 4
DONE = {"reason": "done_by_runner", "log_end": 0}
SLICE = TASK.replace("v5litepod-4", "v5litepod-16") + f"nodes: {NODES}\nstartup_order: master-first\n"
CLUSTER = FLEET.replace("0..2", "0..8") + "placement: cluster\n"
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


# --- a slice of several hosts ----------------------------------------------------------------------------------------


def workers(stage: Virtual, made: Resource) -> list[Agent]:
    """The agents of a slice's hosts, each with what the script has at its number."""
    script = made.facts["body"]["tpu"]["nodeSpec"][0]["node"]["metadata"]["startup-script"]
    world: Any = SimpleNamespace(plane=stage.site.root.plane)
    found = re.findall(r"^(\d+)\) DSTACK_INSTANCE=(\S+); DSTACK_TOKEN=(\S+) ;;$", script, re.MULTILINE)
    assert [int(number) for number, *_ in found] == list(range(NODES))
    return [Agent(world, instance, credential=token) for _, instance, token in found]


def join(stage: Virtual, agents: list[Agent]) -> None:
    for agent in agents:
        agent.sync(facts={**AGENT_FACTS, "gpus": CHIPS})
    stage.site.time.run(stage.site.time.at + MINUTE)


def begins(stage: Virtual, agent: Agent) -> dict[str, Any]:
    (task,) = agent.sync()["tasks"]
    at = stage.site.time.now()
    agent.sync({"id": task["id"], "state": "running", "at": at, "username": "root", "working_dir": "/w"})
    stage.site.time.run(stage.site.time.at + SECOND)
    found: dict[str, Any] = task
    return found


def on_a_slice(stage: Virtual, fake: Tpus, **more: str) -> tuple[Resource, list[Agent], list[dict[str, Any]]]:
    """A task on all hosts of a slice, the master first."""
    applied(stage, "fleet", CLUSTER)
    plan = applied(stage, "task", SLICE + "".join(more.values()))
    assert "v5litepod-16" in plan, plan
    stage.until("its slice", lambda: bool(slices(fake)))
    (made,) = slices(fake)
    stage.until("its start", lambda: made.state(fake.now()) == "ACTIVE")
    agents = workers(stage, made)
    join(stage, agents)
    assert not any(agent.sync()["tasks"] for agent in agents[1:]), "the master is first"
    return made, agents, [begins(stage, agent) for agent in agents]


@pytest.mark.slow
def test_a_slice_of_several_hosts_is_one_purchase_for_a_task_on_all_of_them(stage: Virtual) -> None:
    ((_, fake),) = FakeBackend.both
    _, agents, tasks = on_a_slice(stage, fake)
    assert len(fake.calls_of("queuedResources.create")) == 1
    envs = [task["spec"]["env"] for task in tasks]
    assert [env["TPU_WORKER_ID"] for env in envs] == ["0", "1", "2", "3"] == [env["DSTACK_NODE_RANK"] for env in envs]
    (hosts,) = {env["TPU_WORKER_HOSTNAMES"] for env in envs}
    addresses = hosts.split(",")
    assert [address.split(".")[2] for address in addresses] == ["0", "1", "2", "3"], "each where Google says"
    assert addresses == envs[0]["DSTACK_NODES_IPS"].split("\n")
    for agent, task in zip(agents[1:], tasks[1:], strict=True):
        ends(stage, agent, task)
    for _ in range(7):  # longer than the others may idle
        stage.site.time.run(stage.site.time.at + MINUTE)
        agents[0].sync({"id": tasks[0]["id"], "state": "running", "at": stage.site.time.now()})
        for agent in agents[1:]:
            agent.sync()
    assert len(slices(fake)) == 1, "its first host still runs"
    ends(stage, agents[0], tasks[0])
    stage.site.time.run(stage.site.time.at + MINUTE)
    assert stage.ask("runs/get", {"run_name": "work"})["status"] == "done"
    assert len(slices(fake)) == 1, "it waits for the next task"
    stage.until("the end of all", lambda: not TpuProvider(fake).existing())
    assert len(fake.calls_of("queuedResources.delete")) == 1


def ends(stage: Virtual, agent: Agent, task: dict[str, Any]) -> None:
    at = stage.site.time.now()
    agent.sync({"id": task["id"], "state": "exited", "at": at, "exit_status": 0, **DONE})
    stage.site.time.run(stage.site.time.at + SECOND)


@pytest.mark.slow
def test_a_slice_that_is_taken_back_interrupts_every_node_and_another_is_bought(stage: Virtual) -> None:
    ((_, fake),) = FakeBackend.both
    made, _, _ = on_a_slice(stage, fake, spot=SPOT)
    fake.preempted(made)
    stage.until("another", lambda: any(each is not made for each in slices(fake)))
    jobs = stage.ask("runs/get", {"run_name": "work"})["jobs"]
    reasons = [job["job_submissions"][0]["termination_reason"] for job in jobs]
    assert len(reasons) == NODES and "interrupted_by_no_capacity" in reasons
    done(stage, "stop", "work", "-y")
    stage.until("the end of all", lambda: not TpuProvider(fake).existing())


@pytest.mark.slow
def test_a_task_with_another_number_of_nodes_is_told_how_many_a_slice_has(stage: Virtual) -> None:
    ((_, fake),) = FakeBackend.both
    applied(stage, "fleet", CLUSTER)
    for nodes in ("", "nodes: 3\n"):
        (stage.home / "task.dstack.yml").write_text(SLICE.partition("nodes: ")[0] + nodes)
        shown, _ = stage.dstack(["apply", "-f", "task.dstack.yml", "-y", "-d"])
        text = " ".join(shown.split())
        assert "v5litepod-16 is 4 machines, which are bought and used together" in text, text
        assert "set `nodes: 4`" in text
    assert not fake.calls_of("queuedResources.create")

"""One project with one host that takes jobs, and the calls of the host's agent."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.runs import RunBody, RunStatus
from chalicelib.domain.tenants import Project
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.store import nouns
from chalicelib.usecases.agents.calls import sync
from tests.world import nouns as b
from tests.world.nouns import PROJECT
from tests.world.plane import World
from tests.world.time import NOW

FLEET = b.fleet("local")
OFFER = b.offer("host", 0.0, backend="remote", region="remote", has=b.resources(cpus=8), total_blocks=4)
INSTANCE = b.host(0, FLEET).id
FACTS = {
    "cpus": 8,
    "memory_mib": 16_384,
    "disk_mib": 100_000,
    "arch": "x86",
    "runtimes": ["process"],
    "isolation": {"process": "user"},
    "hostname": "box",
}


@dataclass
class Agent:
    """Talks as an agent does; keeps what it was given."""

    world: World
    instance_id: str = INSTANCE
    boot: str = "boot-1"
    credential: str = ""
    seq: int = 0

    def sync(self, *tasks: dict[str, Any], **parts: Any) -> dict[str, Any]:
        self.seq += 1
        return self.send(self.message(*tasks, **parts))

    def message(self, *tasks: dict[str, Any], **parts: Any) -> dict[str, Any]:
        head = {"v": 1, "instance": self.instance_id, "boot": self.boot, "seq": self.seq, "agent": "test"}
        return {**head, "tasks": list(tasks), **parts}

    def send(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = sync(self.world.plane, self.instance_id, self.credential, message)
        self.credential = answer.get("credential", self.credential)
        return answer

    def join(self) -> dict[str, Any]:
        self.credential = bootstrap_token(self.world.plane.install_key, self.instance_id, 0)
        return self.sync(facts=FACTS)


@dataclass
class Cluster:
    world: World
    agent: Agent
    jobs: list[Job] = field(default_factory=list)

    @classmethod
    def of(cls, world: World, status: InstanceStatus = InstanceStatus.idle, **changes: Any) -> Cluster:
        project = Project(id=PROJECT, name="main", owner_id=derive("test", "user"), created_at=NOW)
        new = {"offer": OFFER, "total_blocks": 4, "started_at": None, "idle_since": None}
        world.save(project, b.host(0, FLEET, status=status, **{**new, **changes}))
        return cls(world, Agent(world))

    def place(
        self,
        name: str = "task",
        env: dict[str, str] | None = None,
        spec: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Job:
        """A run of one job, placed on the host as the engine would place it. `spec`: fields of its stored spec."""
        instance = self.instance
        where = Assignment(
            instance_id=instance.id,
            instance_name=instance.name,
            fleet_id=instance.fleet_id,
            fleet_name=instance.fleet_name,
            offer=OFFER,
            assigned_at=self.world.at,
        )
        run = b.run(name, status=RunStatus.provisioning)
        job = b.job(run, status=JobStatus.provisioning, assignment=where, due_at=None).with_(**changes)
        body = RunBody(run_id=run.id, run_spec="{}", job_specs=(spec_of(name, env or {}, spec or {}),))
        taken = {block for claim in instance.claims for block in claim.blocks}
        free = next(block for block in range(instance.total_blocks) if block not in taken)
        busy = b.holding(instance, job, free).with_(status=InstanceStatus.busy)
        pointer = nouns.pointer(keys.run_name(PROJECT, name), run.id)
        self.world.store.commit([*map(nouns.put, (job, run, body, busy)), pointer])
        self.jobs.append(job)
        return self.job(job)

    def job(self, job: Job) -> Job:
        found: Job = self.world.again(job)
        return found

    def save(self, noun: Any) -> None:
        self.world.save(noun)

    @property
    def instance(self) -> Instance:
        found: Instance = self.world.again(b.host(0, FLEET))
        return found

    @property
    def presence(self) -> Presence:
        found: Presence = self.world.again(b.presence_of(b.host(0, FLEET)))
        return found

    @property
    def events(self) -> list[Event]:
        page = self.world.plane.store.query("main", f"events/{PROJECT}", limit=500)
        return [nouns.read(Event, record) for record in page.records]


def spec_of(name: str, env: dict[str, str], changes: dict[str, Any]) -> str:
    spec = JobSpec.model_validate(
        {
            "job_name": f"{name}-0-0",
            "commands": ["sh", "-c", "echo hello"],
            "env": env,
            "image_name": "image",
            "requirements": {"resources": {"cpu": {"min": 1}}},
        }
    )
    return json.dumps({**spec.model_dump(mode="json"), **changes})


def running(job: Job, **more: Any) -> dict[str, Any]:
    return {"id": job.id, "state": "running", "at": NOW, "username": "root", "working_dir": "/w", **more}


def exited(job: Job, status: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"id": job.id, "state": "exited", "at": NOW, "exit_status": status, **more}


def logs(job: Job, offset: int, *pieces: bytes) -> dict[str, Any]:
    return {"task": job.id, "offset": offset, "records": [[NOW, base64.b64encode(piece).decode()] for piece in pieces]}


def wants(answer: dict[str, Any]) -> dict[str, str]:
    return {task["id"]: task["want"] for task in answer["tasks"]}

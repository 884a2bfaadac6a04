"""Simulated hosts: the agent's own session code over real HTTP, with jobs that only wait.

What is simulated is the machine (no process is started); every message is built, sent, answered and acted on by the
code that ships. All hosts share one process and one event loop.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chalicelib.agent.program.commands import Remove, Start
from chalicelib.agent.program.session import AgentSession, Message
from chalicelib.domain import keys
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, instance_id
from chalicelib.domain.offers import InstanceType, Offer, Resources
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore

FACTS = {"cpus": 2, "memory_mib": 8192, "disk_mib": 102_400, "arch": "x86", "hostname": "sim", "runtimes": ["process"]}


def add_hosts(
    data: Path, project_id: str, count: int, fleet_name: str = "bench", placement: str = "any"
) -> dict[str, str]:
    """A fleet of on-prem hosts, written straight to the store; the instance ids with their bootstrap tokens."""
    store = SqliteStore(data / "plane.db")
    install_key = bytes.fromhex((data / "install.key").read_text())
    now = time.time_ns() // 1000
    fleet_id = derive(project_id, "fleet", fleet_name)
    hosts = [f"host-{number}" for number in range(count)]
    addresses = {"hosts": hosts}
    configuration = {"type": "fleet", "name": fleet_name, "placement": placement, "ssh_config": addresses}
    spec = FleetSpec.model_validate({"configuration": configuration})
    fleet = Fleet(
        id=fleet_id,
        project_id=project_id,
        name=fleet_name,
        created_at=now,
        last_processed_at=now,
        next_instance_num=count,
    )
    body = FleetBody(fleet_id=fleet_id, spec=spec.model_dump_json())
    pointer = nouns.pointer(keys.fleet_name(project_id, fleet_name), fleet_id)
    store.commit([nouns.put(fleet), nouns.put(body), pointer])
    tokens = {}
    for number in range(count):
        instance = Instance(
            id=instance_id(fleet_id, number),
            project_id=project_id,
            fleet_id=fleet_id,
            fleet_name=fleet_name,
            num=number,
            name=f"{fleet_name}-{number}",
            offer=Offer(
                backend="remote",
                instance=InstanceType(name="instance", resources=Resources(cpus=0, memory_mib=0)),
                region="remote",
                price=0.0,
            ),
            hostname=hosts[number],
            created_at=now,
            last_processed_at=now,
        )
        store.commit([nouns.put(instance)])
        tokens[instance.id] = bootstrap_token(install_key, instance.id, 0)
    store.close()
    return tokens


@dataclass
class Started:
    """When each job began on a host; one that begins twice is a duplicate."""

    at: dict[str, float] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)

    def note(self, job_id: str) -> None:
        if job_id in self.at:
            self.twice.append(job_id)
        self.at[job_id] = time.time()


class Host:
    def __init__(self, url: str, instance_id: str, token: str, job_seconds: float, started: Started) -> None:
        self._address = urlsplit(url)
        self._job_seconds, self._started = job_seconds, started
        self._session = AgentSession(instance_id, str(uuid.uuid4()), "", self._read_log, agent="bench", token=token)
        self._session.facts_changed(FACTS)
        self._changed = asyncio.Event()
        self._lines: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def _read_log(self, task: str, offset: int, limit: int) -> tuple[int, list[tuple[int, bytes]]]:
        return offset, []

    async def run(self) -> None:
        while True:
            self._changed.clear()
            due = self._session.next(time.monotonic())
            if isinstance(due, Message):
                self._spawn(self._send(due))
                continue
            patience = None if due == float("inf") else max(0.0, due - time.monotonic())
            try:
                await asyncio.wait_for(self._changed.wait(), patience)
            except TimeoutError:
                continue

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _send(self, message: Message) -> None:
        try:
            status, answer = await self._post("poll" if message.wait else "push", message)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self._session.failed(message, f"{error}", time.monotonic())
        else:
            if status == 200:
                for command in self._session.answered(message, answer, time.monotonic()):
                    self._obey(command)
            else:
                self._session.failed(message, "refused" if status in (401, 403) else "error", time.monotonic())
        self._changed.set()

    def _obey(self, command: object) -> None:
        if isinstance(command, Start):
            self._spawn(self._job(command.task))
        elif isinstance(command, Remove):
            self._session.task_removed(command.task)

    async def _job(self, task: str) -> None:
        self._started.note(task)
        self._session.task_changed({"id": task, "state": "running"})
        self._changed.set()
        await asyncio.sleep(self._job_seconds)
        over = {"id": task, "state": "exited", "exit_status": 0, "reason": "done_by_runner", "log_end": 0}
        self._session.task_changed(over)
        self._changed.set()

    async def _post(self, line: str, message: Message) -> tuple[int, dict[str, Any]]:
        """One HTTP/1.1 request on a kept connection; a connection that broke is made anew next time."""
        body = json.dumps(message.body).encode()
        try:
            if line not in self._lines:
                assert self._address.hostname
                self._lines[line] = await asyncio.open_connection(self._address.hostname, self._address.port)
            reader, writer = self._lines[line]
            head = (
                f"POST /agent/sync HTTP/1.1\r\nHost: {self._address.netloc}\r\n"
                f"Authorization: Bearer {message.credential}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
            answer_head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(answer_head.split("content-length:")[1].split("\r\n")[0])
            content = await reader.readexactly(length)
        except BaseException:
            self._lines.pop(line, None)
            raise
        return int(answer_head.split()[1]), json.loads(content)

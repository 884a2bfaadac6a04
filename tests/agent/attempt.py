"""The nodes of one attempt at a run, as tasks of one workshop: each at an address of the loopback."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.gangs import Gang
from chalicelib.planning.jobs.nodes import Nodes
from chalicelib.usecases.runs import node_keys
from tests.agent.runtime_conformance import Workshop
from tests.agent.session_conformance import HOLD

SECRET = b"install key"
_places = itertools.count(2)


def addresses(count: int) -> list[str]:
    """Of the loopback, which nobody else uses: not even the same test of another process."""
    return [f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250}.{next(_places)}" for _ in range(count)]


@dataclass
class Attempt:
    """One attempt at a run on these addresses."""

    workshop: Workshop
    addresses: Sequence[str]
    run_name: str = "train"
    gang: Gang = field(init=False)
    nodes: Nodes = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.addresses)
        self.nodes = Nodes(tuple(self.addresses), (0,) * count)
        self.names = [f"{self.run_name}-{rank}-0" for rank in range(count)]
        self.gang = Gang(
            id=str(uuid.uuid4()), run_id="r", run_name=self.run_name, project_id="p", nodes=count,
            began_at=0, last_processed_at=0,
        )  # fmt: skip

    def node_ssh(self, rank: int) -> dict[str, Any]:
        return node_keys.node_ssh(SECRET, self.gang, self.nodes, self.names, rank)

    def spec(self, rank: int) -> dict[str, Any]:
        return {
            "network": "host",
            "node_ssh": self.node_ssh(rank),
            "hostfile": node_keys.hostfile(self.nodes, self.names),
            "env": {"RANK": str(rank)},
        }

    def start(self, rank: int, script: str = HOLD) -> str:
        task = self.workshop.start(script, **self.spec(rank))
        return self.ready(task)

    def ready(self, task: str) -> str:
        """Once other nodes may come, or it has ended."""
        state = self.workshop.state
        self.workshop.until(lambda: state(task).get("ssh") or state(task)["state"] == "exited", task)
        return task

    def output_of(self, rank: int, script: str) -> str:
        """What a node prints and ends."""
        task = self.start(rank, f"({script}) 2>&1")
        self.workshop.exited(task)
        return self.workshop.log(task).decode().replace("\r\n", "\n")

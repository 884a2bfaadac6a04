"""The task that an agent gets for a job's spec."""

from __future__ import annotations

from typing import Any

from tests.usecases.cluster import Cluster
from tests.world.plane import World


def test_escaped_references_reach_the_job_as_text(world: World) -> None:
    cluster = Cluster.of(world)
    cluster.agent.join()
    escaped, text = "a $${{ secrets.x }} b", "a ${{ secrets.x }} b"
    commands = ["/bin/sh", "-i", "-c", escaped]
    spec: dict[str, Any] = {"commands": commands, "service_port": 80}
    spec |= {name: escaped for name in ("working_dir", "home_dir", "image_name")}
    spec["probes"] = [{"type": "http", "url": "/$${{ env.A }}", "method": "get", "headers": [], "body": escaped}]
    cluster.place(env={"A": escaped}, spec=spec)
    task = cluster.agent.sync()["tasks"][0]["spec"]
    assert task["commands"] == [*commands[:3], text] and task["env"]["A"] == text
    assert {task[name] for name in ("working_dir", "home_dir", "image")} == {text}
    assert (task["probes"][0]["url"], task["probes"][0]["body"]) == ("/${{ env.A }}", text)

"""What the journeys of a job through a whole control plane share: a provider's fake, behind a backend of its own name.

Nothing waits for a time here, but for what is to come: how long that takes depends on how the engine's checks fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from chalicelib.backends.registry import Row, registered
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Offer
from tests.scenarios.stages import MAIN, Virtual
from tests.usecases.cluster import FACTS, Agent
from tests.world.embedded import ConfiguredSite

F = TypeVar("F")
INSIDE = {**FACTS, "runtimes": ["inside"], "isolation": {"inside": "machine"}}  # of an agent in a container


@contextmanager
def staged(
    kind: str, row: Row, folder: Path, config: str, accounts: list[F], fake: Callable[[Callable[[], Micros]], F]
) -> Iterator[Virtual]:
    """A control plane with one backend of this kind. `accounts`: where the backend's class finds its fake."""
    with registered(kind, row):
        site = ConfiguredSite(kind, folder / "server")
        accounts.append(fake(site.time.now))
        try:
            stage = Virtual(site, folder, MAIN)
            add_backend(stage, config)
            yield stage
        finally:
            accounts.clear()
            site.close()


def add_backend(stage: Virtual, config: str) -> None:
    (stage.home / "backend.yml").write_text(config)
    done(stage, "backend", "add", "-f", "backend.yml", "-y")
    stage.site.root.refresh_accounts()


def sold_as(kind: str, offers: Sequence[Offer]) -> Sequence[Offer]:
    return [offer.with_(backend=kind) for offer in offers]


def done(stage: Virtual, *words: str) -> str:
    text, code = stage.dstack(list(words))
    assert code == 0, text
    return text


def applied(stage: Virtual, name: str, text: str) -> str:
    (stage.home / f"{name}.dstack.yml").write_text(text)
    return done(stage, "apply", "-f", f"{name}.dstack.yml", "-y", "-d")


def run_of(stage: Virtual, name: str = "work") -> dict[str, Any]:
    found: dict[str, Any] = stage.ask("runs/get", {"run_name": name})
    return found


def agent_of(stage: Virtual, script: str) -> Agent:
    """The agent of the machine that was started with this."""
    _, instance, token = read_user_data(script)
    return agent_with(stage, instance, token)


def agent_with(stage: Virtual, instance: str, token: str) -> Agent:
    world: Any = SimpleNamespace(plane=stage.site.root.plane)
    return Agent(world, instance, credential=token)


def runs_job(stage: Virtual, agent: Agent, facts: Mapping[str, Any] = FACTS) -> Callable[[], None]:
    """The agent joins, and its job runs. What it reports from then on, and ten seconds."""
    agent.sync(facts=dict(facts))
    tasks: list[dict[str, Any]] = []

    def has_a_task() -> bool:
        tasks[:] = agent.sync()["tasks"]
        return bool(tasks)

    stage.until("its task", has_a_task)
    (task,) = tasks
    state = {"id": task["id"], "state": "running", "at": stage.site.time.now(), "username": "root", "working_dir": "/w"}

    def reports() -> None:
        agent.sync(state)
        stage.site.time.run(stage.site.time.at + 10 * SECOND)

    reports()
    assert run_of(stage)["status"] == "running"
    return reports

"""Lambda brings an event at least once, and a schedule may fire twice. What comes twice leaves what once would have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.engine.bootstrap_tokens import bootstrap_token
from functions import erase_unused, provider, reap_idle, reconcile, refresh_catalog, sweep_orphans
from tests.api.rig import fleet, submit, task
from tests.api.uploads import send
from tests.functions.test_handlers import Stack
from tests.usecases.cluster import FACTS as HOST

Handler = Callable[..., Any]
ROUNDS = 20  # of hints and effects that follow from each other, at most


class Life:
    """A stack each of whose events comes so many times."""

    def __init__(self, stack: Stack, times: int) -> None:
        self.stack, self.rig, self._times = stack, stack.rig, times

    def brings(self, handler: Handler, event: dict[str, Any]) -> None:
        for _ in range(self._times):
            handler(event, None, self.stack.root)

    def settle(self) -> None:
        """What was asked for by hints and effects, and what that asks for."""
        for _ in range(ROUNDS):
            units, self.stack.hints[:] = sorted(set(self.stack.hints)), []
            events, self.stack.events[:] = list(self.stack.events), []
            if not units and not events:
                return
            self.brings(reconcile.handler, {"units": units})
            for event in events:
                self.brings(provider.handler, event)
        raise AssertionError("it never settles")

    def passes(self, seconds: float) -> None:
        self.rig.world.clock.pass_(seconds)
        for function in (reconcile, reap_idle, sweep_orphans, erase_unused):
            self.brings(function.handler, self.stack.fires("a schedule"))
        self.settle()

    def history(self) -> list[tuple[str, list[str]]]:
        """Without its order, which chance decides between events of one moment."""
        events = self.rig.ok("/api/events/list", {"within_projects": [self.rig.project.id]})
        return sorted((event["message"], [target["name"] for target in event["targets"]]) for event in events)


def lived(folder: Path, times: int) -> tuple[list[tuple[str, list[str]]], int]:
    """A run from its submission until its machine is given back: its history, and how many machines there were."""
    folder.mkdir()
    stack = Stack.at(folder)
    life, rig = Life(stack, times), stack.rig
    life.brings(refresh_catalog.handler, stack.fires("refresh"))
    life.settle()
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet("pool")}, "force": False})
    submit(rig, task("hello"))
    life.settle()
    host = stack.instance["id"]
    report = {"v": 1, "instance": host, "boot": "b", "seq": 1, "facts": HOST, "tasks": []}
    token = bootstrap_token(stack.root.ports.install_key, host, 0)
    assert send(rig, "POST", "/agent/sync", orjson.dumps(report), token=token).status == 200
    life.settle()
    assert stack.instance["status"] == "busy"
    (account,) = stack.root.ports.backends.accounts()
    machines = [each.handle.kind for each in account.backend.list_owned()].count("vm")
    rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": True})
    life.settle()
    for _ in range(6):
        life.passes(600)
    assert rig.ok("P/fleets/get", {"name": "pool"})["instances"] == [] == list(account.backend.list_owned())
    history = life.history()
    stack.root.close()
    return history, machines


@pytest.mark.slow
def test_what_comes_twice_leaves_what_once_would_have(tmp_path: Path) -> None:
    once, twice = (lived(tmp_path / str(times), times) for times in (1, 2))
    assert once == twice and once[1] == 1
    assert any("fully released" in message for message, _ in once[0])

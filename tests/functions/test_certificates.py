"""Certificates where every step is an event: the gateway asks `agent_sync`, `reconcile` decides, and `provider` alone
speaks to the authority. Nothing runs by itself, and the schedule finds what is due."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.registry import CLOUDS
from chalicelib.configuration.server_spec import ServerConfig
from chalicelib.domain.instants import DAY, MINUTE
from chalicelib.runtime.embedded import EmbeddedRoot
from chalicelib.runtime.event_chains import EventChain
from chalicelib.runtime.provider_functions import ProviderFunctions
from chalicelib.runtime.root import Root
from chalicelib.runtime.settings import ServerSettings
from chalicelib.usecases.operator.first_start import first_start
from chalicelib.usecases.pace import PER_CALL
from chalicelib.usecases.services import certificates
from functions import agent_sync, provider, reconcile
from tests.api.rig import ADMIN, Rig, submit
from tests.functions.test_handlers import RecordedRequests
from tests.functions.test_policies import deployed
from tests.harness.lambda_host import scheduled_event, url_event
from tests.usecases.agents.test_gateway_sync import MACHINE, edge
from tests.world import gateway_seats as seats
from tests.world.calls import Policed
from tests.world.certificates import LIFE, FakeAuthority
from tests.world.plane import World
from tests.world.time import Clock

HOST = "chat.example.test"


@dataclass
class Stack:
    root: Root
    rig: Rig
    authority: FakeAuthority
    effects: list[dict[str, Any]]  # events for `provider`
    answers: dict[str, str]
    had: dict[str, Any] = field(default_factory=lambda: {"version": ""})  # the gateway's last word
    processes: dict[str, Root] = field(default_factory=dict)  # of functions that have a root of their own

    @classmethod
    def at(cls, folder: Path) -> Stack:
        clock, answers = Clock(), dict[str, str]()
        made = EmbeddedRoot(ServerSettings(data_dir=folder), ServerConfig(projects=()), "http://plane", clock=clock)
        requests, authority = RecordedRequests(), FakeAuthority(clock.now, lambda host, token: answers.get(token, ""))
        effects, hints = ProviderFunctions(requests, {CLOUDS: "provider_clouds"}, EventChain()), list[str]()
        ports = replace(made.ports, wake=hints.extend, effects=effects, pace=PER_CALL, authority=authority)
        root = Root(ports)
        _, project = first_start(root.plane, ADMIN)
        return cls(
            root, Rig(World(root.plane, clock, folder), project), authority, requests["provider_clouds"], answers
        )

    def poll(self) -> None:
        """As the gateway's control program does."""
        headers = {"Authorization": f"Bearer {seats.credential(MACHINE)}"}
        event = url_event("GET", "/agent/gateway", f"since={self.had['version']}&wait=25", headers, b"")
        answer = agent_sync.handler(event, None, self.of("agent_sync"))
        assert answer["statusCode"] == 200, answer
        configuration = json.loads(base64.b64decode(answer["body"]))
        assert configuration["ask_in"] > 0  # nothing is held here
        if configuration["news"]:
            self.had = configuration
            self.answers.clear()
            self.answers.update(configuration["challenges"])

    def minute(self) -> None:
        """The gateway asks twice, and the schedule's pass comes."""
        self.poll()
        self.poll()
        failed = reconcile.handler(scheduled_event("reconcile"), None, self.of("reconcile"))["failed"]
        assert not [unit for unit in failed if unit.startswith("certificate/")]
        events, self.effects[:] = json.loads(json.dumps(self.effects)), []
        for event in events:
            provider.handler(event, None, self.of("provider_clouds"))
        self.rig.world.at += MINUTE

    def of(self, function: str) -> Root:
        return self.processes.get(function, self.root)

    def until_shown(self) -> int:
        """How many minutes that took."""
        for minutes in range(20):
            if HOST in self.had.get("certificates", {}):
                return minutes
            self.minute()
        raise AssertionError("it has no certificate")


def asleep(rig: Rig) -> None:
    """A service that nobody calls: it needs no machine."""
    scaling = {"metric": "rps", "target": 1}
    config = {"type": "service", "port": 8000, "commands": ["serve"], "replicas": "0..1", "scaling": scaling}
    submit(rig, {"run_name": "chat", "configuration": {**config, "gateway": "edge"}})


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    found = Stack.at(tmp_path)
    yield found
    found.root.close()


def test_a_gateways_host_is_certified_by_events_alone(stack: Stack) -> None:
    edge(stack.rig)
    asleep(stack.rig)
    assert stack.until_shown() <= 6
    assert stack.had["certificates"][HOST]["certificate"] == f"CERTIFICATE 1 OF {HOST}"
    assert stack.had["services"][0]["https"] == 443
    assert (stack.authority.issued, stack.authority.probed, len(stack.authority.orders)) == (1, 1, 1)


@pytest.mark.slow
def test_it_is_renewed_by_the_schedule(stack: Stack) -> None:
    edge(stack.rig)
    asleep(stack.rig)
    stack.until_shown()
    end = stack.rig.world.at + LIFE * 2 // 3
    while stack.rig.world.at < end - DAY:
        stack.rig.world.at += DAY // 2
        stack.poll()
    assert stack.authority.issued == 1
    stack.rig.world.at = end
    for _ in range(8):
        stack.minute()
    assert stack.authority.issued == 2
    assert stack.had["certificates"][HOST]["certificate"] == f"CERTIFICATE 2 OF {HOST}"


@pytest.mark.slow
def test_it_is_issued_renewed_and_given_up_with_what_the_policies_allow(stack: Stack) -> None:
    """The gateway goes in the end, and its certificate with it."""
    policed, functions = Policed(), ("agent_sync", "reconcile", "provider_clouds")
    stack.processes = {function: deployed(stack.root, policed, function) for function in functions}
    gateway = edge(stack.rig, MACHINE.with_(due_at=None))
    asleep(stack.rig)
    stack.until_shown()
    stack.rig.world.at += LIFE * 2 // 3
    for _ in range(8):
        stack.minute()
    assert stack.authority.issued == 2
    stack.rig.ok("P/runs/stop", {"runs_names": ["chat"], "abort": True})
    stack.minute()
    stack.rig.ok("P/gateways/delete", {"names": ["edge"]})
    hint = [each.unit for each in certificates.of_gateway(stack.root.plane, gateway.id)]
    reconcile.handler({"units": hint}, None, stack.of("reconcile"))
    assert hint and certificates.of_gateway(stack.root.plane, gateway.id) == []
    assert policed.refused == [] and policed.seen.keys() == {*functions}


def test_an_event_that_lambda_repeats_orders_nothing_twice(stack: Stack) -> None:
    made = edge(stack.rig)
    asleep(stack.rig)
    stack.poll()
    reconcile.handler(scheduled_event("reconcile"), None, stack.root)
    (event,) = stack.effects
    for _ in range(3):
        provider.handler(json.loads(json.dumps(event)), None, stack.root)
    assert stack.authority.calls == ["register", "order"]
    (one,) = certificates.of_gateway(stack.root.plane, made.id)
    assert one.order is not None and "PRIVATE" not in json.dumps(event)

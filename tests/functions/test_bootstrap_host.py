"""An SSH fleet in AWS: its hosts are set up and cleared by the bastion, step by step, as the states of a state machine
ask for it, or by effects of its own where there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.registry import CLOUDS
from chalicelib.domain.workflows import Driver
from chalicelib.engine import asl
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.ports import Effects
from chalicelib.engine.workflows import WORKFLOWS
from chalicelib.hosts import install
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST
from chalicelib.runtime.event_chains import EventChain
from chalicelib.runtime.provider_functions import ProviderFunctions
from chalicelib.runtime.root import Root
from chalicelib.runtime.step_functions import ExecutionEffects
from functions import agent_sync, bootstrap_host, reconcile
from tests.api.rig import Rig
from tests.functions.test_handlers import RecordedRequests, Stack
from tests.functions.test_policies import deployed, spare
from tests.harness.lambda_host import url_event
from tests.hosts.fake_host import FakeHost, HeadAndHost
from tests.hosts.private_key import PRIVATE
from tests.usecases.cluster import FACTS
from tests.world.calls import Policed
from tests.world.plane import World
from tests.world.step_functions import StepFunctions

HOST = {"hostname": "h1", "user": "ubuntu", "ssh_key": {"public": "", "private": PRIVATE}}
BEHIND = {
    **HOST,
    "proxy_jump": {"hostname": "head", "user": "ubuntu", "identity_file": "~/key", "ssh_key": HOST["ssh_key"]},
}


@dataclass
class Bastion:
    stack: Stack
    root: Root
    rig: Rig
    host: FakeHost
    head: FakeHost
    requests: RecordedRequests
    effects: Effects  # what passes ask of other functions
    executions: StepFunctions | None = None
    own: Root | None = None  # the function's, if it isn't that of the others
    passes: Root | None = None  # that of `reconcile`, the same

    def turn(self) -> None:
        """What is woken or due, then what that asks for."""
        units, self.stack.hints[:] = sorted(set(self.stack.hints)), []
        reconcile.handler({"units": units}, None, self.passes or self.root)
        events, self.requests["hosts"] = self.requests["hosts"], []
        for event in events:
            bootstrap_host.handler(event, None, self.own or self.root)
        if self.executions is not None:
            self.executions.run()
        self.rig.world.clock.pass_(3)

    def until(self, status: str) -> dict[str, Any]:
        for _ in range(20):
            self.turn()
            fleets = self.rig.ok("P/fleets/list", {})
            found = [one for fleet in fleets for one in fleet["instances"]]
            if [one["status"] for one in found] == ([status] if status else []):
                return dict(found[0]) if found else {}
        raise AssertionError(found)


@pytest.fixture(params=Driver)
def bastion(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bastion]:
    stack = Stack.at(tmp_path)
    requests = RecordedRequests()
    host, head = FakeHost(), FakeHost()
    effects = ProviderFunctions(requests, {CLOUDS: "effects"}, EventChain(), {"ssh": "hosts"})
    executions = None
    if request.param is Driver.execution:
        machines = {name: asl.render(definition) for name, definition in WORKFLOWS.items()}
        now = stack.rig.world.clock.now
        executions = StepFunctions(
            machines, now, lambda payload: bootstrap_host.handler(dict(payload), None, made.own or root)
        )
    execution_effects = ExecutionEffects(executions, effects)
    ports = replace(stack.root.ports, logins=HeadAndHost(head, host), effects=execution_effects, tunnels=False)
    root = Root(replace(ports, workflows=executions))
    rig = Rig(World(root.plane, stack.rig.world.clock, tmp_path), stack.rig.project)
    made = Bastion(stack, root, rig, host, head, requests, effects, executions)
    yield made
    for execution in executions.executions.values() if executions else ():
        assert execution.ended, "no execution is left behind"
    stack.root.close()


def applied(bastion: Bastion, host: dict[str, Any] = HOST) -> dict[str, Any]:
    fleet = {"configuration": {"type": "fleet", "name": "lab", "ssh_config": {"hosts": [host]}}, "profile": {}}
    made: dict[str, Any] = bastion.rig.ok("P/fleets/apply", {"plan": {"spec": fleet}, "force": False})
    return made


def report(bastion: Bastion, instance_id: str) -> None:
    token = bootstrap_token(bastion.root.ports.install_key, instance_id, 0)
    report = {"v": 1, "instance": instance_id, "boot": "b", "seq": 1, "facts": FACTS}
    headers = {"authorization": f"Bearer {token}"}
    answer = agent_sync.handler(
        url_event("POST", "/agent/sync", "", headers, json.dumps(report).encode()), None, bastion.root
    )
    assert answer["statusCode"] == 200, answer


@pytest.mark.slow
def test_a_host_is_set_up_and_cleared_by_the_bastion_alone(bastion: Bastion) -> None:
    before = dict(bastion.host.files)
    (instance,) = applied(bastion)["instances"]
    for _ in range(5):
        bastion.turn()
    assert bastion.host.running and install.UNIT_FILE in bastion.host.files
    report(bastion, instance["id"])
    assert bastion.until("idle")["hostname"] == "h1"
    bastion.rig.ok("P/fleets/delete", {"names": ["lab"]})
    bastion.until("")
    assert (bastion.host.files, bastion.host.running) == (before, False)
    assert bastion.requests["effects"] == [], "nothing of it goes to the function with the clouds' SDKs"


def test_a_host_that_cant_reach_the_stack_is_told_so(bastion: Bastion) -> None:
    """No connection lasts there over which its agent's calls could be carried."""
    bastion.host.reaches = False
    applied(bastion)
    found = bastion.until("terminated")
    assert f"it can't reach {bastion.root.ports.server_url}" in found["termination_reason_message"]
    assert bastion.host.files == {}


@pytest.mark.slow
def test_the_head_node_relays_the_calls_of_a_host_that_cant_reach_the_stack(bastion: Bastion) -> None:
    bastion.host.reaches = False
    (instance,) = applied(bastion, BEHIND)["instances"]
    for _ in range(6):
        bastion.turn()
    assert bastion.host.running and install.VIA in bastion.host.files
    assert [path for path in bastion.head.files if path.endswith(instance["id"])]
    report(bastion, instance["id"])
    bastion.until("idle")
    bastion.rig.ok("P/fleets/delete", {"names": ["lab"]})
    bastion.until("")
    assert bastion.host.files == bastion.head.files == {}


def test_a_host_whose_head_node_cant_reach_the_stack_either_is_told_so(bastion: Bastion) -> None:
    bastion.host.reaches = bastion.head.reaches = False
    applied(bastion, BEHIND)
    message = bastion.until("terminated")["termination_reason_message"]
    assert f"it can't reach {bastion.root.ports.server_url}; nor can its head node ubuntu@head" in message
    assert bastion.host.files == bastion.head.files == {}


@pytest.mark.slow
def test_the_bastion_needs_what_its_policy_allows_and_nothing_else(bastion: Bastion) -> None:
    policed = Policed()
    its = deployed(bastion.stack.root, policed, "bootstrap_host", bastion.executions).ports
    bastion.own = Root(replace(its, logins=bastion.root.ports.logins, tunnels=False))
    passes = deployed(bastion.stack.root, policed, "reconcile", bastion.executions).ports
    effects = ExecutionEffects(passes.workflows, bastion.effects)
    bastion.passes = Root(replace(passes, logins=bastion.root.ports.logins, effects=effects, tunnels=False))
    bastion.host.reaches = False
    (instance,) = applied(bastion, BEHIND)["instances"]
    for _ in range(6):
        bastion.turn()
    report(bastion, instance["id"])
    bastion.until("idle")
    bastion.rig.ok("P/fleets/delete", {"names": ["lab"]})
    bastion.until("")
    assert policed.refused == []
    assert (("states:SendTaskSuccess", "*") in policed.seen["bootstrap_host"]) == (bastion.executions is not None)
    begun = {
        ("states:StartExecution", f"states:stateMachine:dstack-{{stage}}-{name}")
        for name in (ADD_HOST.name, REMOVE_HOST.name)
    }
    assert policed.seen["reconcile"] & begun == (begun if bastion.executions is not None else set())
    assert spare(policed, "bootstrap_host") == set()

"""An SSH fleet in AWS: its hosts are set up and cleared by the bastion, step by step over a queue of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.engine.bootstrap import bootstrap_token
from chalicelib.hosts import install
from chalicelib.runtime.lambda_ import QueuedEffects
from chalicelib.runtime.root import Root
from functions import agent_sync, bootstrap_host, reconcile
from tests.api.rig import Rig
from tests.functions.test_handlers import Stack, batch
from tests.harness.lambda_host import url_event
from tests.hosts.fake_host import FakeHost, HeadAndHost
from tests.hosts.private_key import PRIVATE
from tests.usecases.cluster import FACTS
from tests.world.plane import World

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
    queues: dict[str, list[str]] = field(default_factory=dict)

    def turn(self) -> None:
        """What is woken or due, then what is queued."""
        units, self.stack.hints[:] = sorted(set(self.stack.hints)), []
        reconcile.handler(batch(json.dumps({"units": units})), None, self.root)
        bodies, self.queues["hosts"] = self.queues["hosts"], []
        answer = bootstrap_host.handler(batch(*json.loads(json.dumps(bodies))), None, self.root)
        assert answer == {"batchItemFailures": []}
        self.rig.world.clock.pass_(3)

    def until(self, status: str) -> dict[str, Any]:
        for _ in range(20):
            self.turn()
            fleets = self.rig.ok("P/fleets/list", {})
            found = [one for fleet in fleets for one in fleet["instances"]]
            if [one["status"] for one in found] == ([status] if status else []):
                return dict(found[0]) if found else {}
        raise AssertionError(found)


@pytest.fixture
def bastion(tmp_path: Path) -> Iterator[Bastion]:
    stack = Stack.at(tmp_path)
    queues: dict[str, list[str]] = {"effects": [], "hosts": []}

    class Sqs:
        def send_message(self, QueueUrl: str, MessageBody: str) -> None:
            queues[QueueUrl].append(MessageBody)

    host, head = FakeHost(), FakeHost()
    effects = QueuedEffects(lambda service: Sqs(), "effects", {"ssh": "hosts"})
    root = Root(replace(stack.root.ports, logins=HeadAndHost(head, host), effects=effects, tunnels=False))
    rig = Rig(World(root.plane, stack.rig.world.clock, tmp_path), stack.rig.project)
    yield Bastion(stack, root, rig, host, head, queues)
    stack.root.close()


def applied(bastion: Bastion, host: dict[str, Any] = HOST) -> dict[str, Any]:
    fleet = {"configuration": {"type": "fleet", "name": "lab", "ssh_config": {"hosts": [host]}}, "profile": {}}
    made: dict[str, Any] = bastion.rig.ok("P/fleets/apply", {"plan": {"spec": fleet}, "force": False})
    return made


def report(bastion: Bastion, instance_id: str) -> None:
    token = bootstrap_token(bastion.root.ports.install_key, instance_id, 0)
    said = {"v": 1, "instance": instance_id, "boot": "b", "seq": 1, "facts": FACTS}
    headers = {"authorization": f"Bearer {token}"}
    answer = agent_sync.handler(
        url_event("POST", "/agent/sync", "", headers, json.dumps(said).encode()), None, bastion.root
    )
    assert answer["statusCode"] == 200, answer


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
    assert bastion.queues["effects"] == [], "nothing of it goes to the function with the clouds' SDKs"


def test_a_host_that_cant_reach_the_stack_is_told_so(bastion: Bastion) -> None:
    """No connection lasts there over which its agent's calls could be carried."""
    bastion.host.reaches = False
    applied(bastion)
    found = bastion.until("terminated")
    assert f"it can't reach {bastion.root.ports.server_url}" in found["termination_reason_message"]
    assert bastion.host.files == {}


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
    said = bastion.until("terminated")["termination_reason_message"]
    assert f"it can't reach {bastion.root.ports.server_url}; nor can its head node ubuntu@head" in said
    assert bastion.host.files == bastion.head.files == {}


def test_one_bad_message_comes_again_alone(bastion: Bastion) -> None:
    applied(bastion)
    reconcile.handler(batch(json.dumps({"units": bastion.stack.hints})), None, bastion.root)
    (good,) = bastion.queues["hosts"]
    answer = bootstrap_host.handler(batch("{}", good), None, bastion.root)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "0"}]}
    assert bastion.host.logins

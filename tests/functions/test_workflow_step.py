"""A task on several nodes in AWS: its state machine's states are all that looks at it after its first claim."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.gangs import GangStatus
from chalicelib.engine import asl
from chalicelib.planning.kernel.executions import CANCELLED
from chalicelib.planning.placing.gang_workflow import START_CLUSTER
from chalicelib.runtime.root import Root
from chalicelib.runtime.step_functions import ExecutionEffects
from chalicelib.store.port import Change, Put
from functions import reconcile, workflow_step
from tests.functions.test_handlers import Stack
from tests.functions.test_policies import BY_DESCRIBES, deployed, spare
from tests.world.calls import Policed
from tests.world.engine import Engine
from tests.world.gangs import cluster, gang_of, task
from tests.world.nouns import PROJECT
from tests.world.step_functions import StepFunctions


class Died(BaseException):
    """The function's process is gone."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack.at(tmp_path)
    yield made
    made.root.close()


@pytest.mark.slow
def test_its_states_start_a_task_that_a_pass_has_left_half_claimed(stack: Stack, tmp_path: Path) -> None:
    clock = stack.rig.world.clock

    def invoke(payload: Mapping[str, Any]) -> Mapping[str, str]:
        answer: dict[str, str] = json.loads(json.dumps(workflow_step.handler(dict(payload), None, root)))
        return answer

    executions = StepFunctions({START_CLUSTER.name: asl.render(START_CLUSTER)}, clock.now, invoke)
    ports = stack.root.ports
    root = Root(replace(ports, workflows=executions, effects=ExecutionEffects(executions, ports.effects)))
    place = Engine(root.plane, clock, tmp_path)
    cluster(place, 31)
    run = task(place, "train", 31)
    commit = ports.store.commit

    def dies_after_a_claim(changes: Sequence[Change]) -> None:
        commit(changes)
        if any(isinstance(change, Put) and change.record.key.sk.startswith("gang") for change in changes):
            ports.store.commit = died  # type: ignore[method-assign]

    def died(changes: Sequence[Change]) -> None:
        raise Died

    ports.store.commit = dies_after_a_claim  # type: ignore[method-assign]
    with pytest.raises(Died):
        for _ in range(3):
            reconcile.handler({"units": [f"run/{run.id}", f"queue/{PROJECT}"]}, None, root)
    ports.store.commit = commit  # type: ignore[method-assign]
    executions.run()
    gang = gang_of(place, run)
    assert gang is not None and gang.status is GangStatus.released
    (execution,) = executions.executions.values()
    assert execution.ended == "SUCCEEDED"


def test_a_state_of_a_run_that_nobody_knows_is_told_to_undo(stack: Stack) -> None:
    event = {"workflow": "0f0f0f0f-0000-4000-8000-000000000000-0-0-0", "step": "barrier", "undo": False, "token": "t"}
    with pytest.raises(Exception, match="no longer exists") as raised:
        workflow_step.handler(event, None, stack.root)
    assert type(raised.value).__name__ == CANCELLED
    assert workflow_step.handler({**event, "step": "reserve", "undo": True}, None, stack.root) == {}


@pytest.mark.slow
def test_a_state_needs_what_its_policy_allows_and_nothing_else(stack: Stack, tmp_path: Path) -> None:
    """Its looks are passes: over the task, over the queue, and over what those wake."""
    clock, policed = stack.rig.world.clock, Policed()

    def invoke(payload: Mapping[str, Any]) -> Mapping[str, str]:
        answer: dict[str, str] = json.loads(json.dumps(workflow_step.handler(dict(payload), None, its)))
        return answer

    executions = StepFunctions({START_CLUSTER.name: asl.render(START_CLUSTER)}, clock.now, invoke)
    its = deployed(stack.root, policed, "workflow_step", executions)
    ports = stack.root.ports
    others = Root(replace(ports, workflows=executions, effects=ExecutionEffects(executions, ports.effects)))
    place = Engine(others.plane, clock, tmp_path)
    cluster(place, 31)
    run = task(place, "train", 31)
    for _ in range(3):
        reconcile.handler({"units": [f"run/{run.id}", f"queue/{PROJECT}"]}, None, others)
    stack.refresh()
    place.fleet("pool", nodes="0..1")
    waits = place.run("waits")
    executions.run()
    gang = gang_of(place, run)
    assert gang is not None and gang.status is GangStatus.released
    assert place.again(waits).assignment is not None, "a machine is bought for it"
    assert policed.refused == []
    assert ("states:SendTaskSuccess", "*") in policed.seen["workflow_step"]
    assert spare(policed, "workflow_step", "Wake", "List") == BY_DESCRIBES  # two passes meet; an object isn't there yet

"""Workflows as state machines of Step Functions: valid, within its limits, and the same steps as the engine makes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from statelint.config import Config
from statelint.linter import Linter

from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.workflows import Workflow, WorkflowStatus
from chalicelib.engine import asl
from chalicelib.engine.workflows import WORKFLOWS
from chalicelib.planning.kernel.failures import MEANINGS
from chalicelib.planning.kernel.plan import Outcome, Plan
from chalicelib.planning.kernel.workflows import (
    Definition,
    DoStep,
    StepDone,
    StepFailed,
    WorkflowSnapshot,
    WorkflowStep,
    decide_step,
    decide_workflow,
)
from tests.harness import golden
from tests.harness.rows import each
from tests.world.step_functions import StepFunctions

GOLDEN = Path(__file__).parent / "golden"
MACHINES = {name: asl.render(definition, partition="aws") for name, definition in WORKFLOWS.items()}

MOST_EVENTS, MOST_STATE = 25_000, 256 * 1024  # of an execution's history; of what travels between two states
MOST_NAME = 80  # characters of an execution's
MOST_CAUSE = 32 * 1024  # of an error, and as much again for its name and the JSON around it
RECORD = 8 * 1024  # far more than a workflow's record holds: its steps remember ids


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_each_is_rendered_as_reviewed(name: str) -> None:
    golden.check(GOLDEN / f"{name}.asl.json", json.dumps(MACHINES[name], indent=2) + "\n")


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_each_is_valid(name: str) -> None:
    assert Linter.validate(json.dumps(MACHINES[name]), Config("", False, False)) == []


def test_the_linter_notices_a_way_to_nowhere() -> None:
    broken = json.loads(json.dumps(MACHINES["add_host"]))
    broken["States"]["look"]["Next"] = "nowhere"
    assert any("nowhere" in problem for problem in Linter.validate(json.dumps(broken), Config("", False, False)))


# --- limits ----------------------------------------------------------------------------------------------------------


def next_states(state: Mapping[str, Any]) -> set[str]:
    found = {state[name] for name in ("Next", "Default") if name in state}
    return found | {each["Next"] for key in ("Catch", "Choices") for each in state.get(key, ())}


def most_events(machine: Mapping[str, Any]) -> int:
    """Of the longest history that is possible. Fails if there is a loop: a history could then have any length."""
    states, known = machine["States"], dict[str, int]()

    def longest(name: str, path: tuple[str, ...]) -> int:
        assert name not in path, f"a loop: {path}"
        if name not in known:
            state = states[name]
            repeats = 1 + sum(retry["MaxAttempts"] for retry in state.get("Retry", ()))
            attempts = asl.EVENTS_PER_ATTEMPT * repeats if state["Type"] == "Task" else 0
            longest_after = max((longest(after, (*path, name)) for after in next_states(state)), default=0)
            known[name] = 2 + attempts + longest_after  # entered and exited
        return known[name]

    return 2 + longest(machine["StartAt"], ())  # started and ended


def most_state(machine: Mapping[str, Any]) -> int:
    """Bytes that may travel between two states: everything that any of them puts into its output, at its largest."""
    written = {"$.workflow": MOST_NAME, "$.at": 100, "$.made": RECORD}
    for state in machine["States"].values():
        assert state["Type"] not in ("Map", "Parallel"), "what several branches answer adds up"
        if state["Type"] == "Task" and "End" not in state:
            assert state["ResultPath"] in written, "a result that nothing limits"
        written.update({caught["ResultPath"]: MOST_CAUSE * 2 for caught in state.get("Catch", ())})
    return sum(written.values())


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_200_hosts_or_nodes_stay_within_the_limits(name: str) -> None:
    """Each host has an execution of its own, and a start has one of six stages for all its nodes: their number changes
    neither."""
    assert most_events(MACHINES[name]) < MOST_EVENTS
    assert most_state(MACHINES[name]) < MOST_STATE


def test_a_workflow_of_200_steps_stays_within_the_limits() -> None:
    steps = (WorkflowStep(f"host-{number}", "set up a host", timeout=SECOND) for number in range(200))
    machine = asl.render(Definition("many_hosts", tuple(steps)))
    assert most_events(machine) < MOST_EVENTS and most_state(machine) < MOST_STATE


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_none_polls(name: str) -> None:
    """No state waits for a fixed time and asks again: a step with patience gets a callback, within a time."""
    definition, states = WORKFLOWS[name], MACHINES[name]["States"]
    assert not any(state["Type"] == "Wait" for state in states.values())
    waiting = {name for name, state in states.items() if state.get("Resource", "").endswith(".waitForTaskToken")}
    assert waiting == {step.name for step in definition.steps if step.patience}
    for step in definition.steps:
        state = states[step.name]
        within = step.patience + asl.CALLBACK_WITHIN if step.patience else step.timeout
        assert state["TimeoutSeconds"] == within / SECOND
        if step.patience:
            assert state["Parameters"]["Payload"]["token.$"] == "$$.Task.Token"
            (once,) = [retry for retry in state["Retry"] if retry["ErrorEquals"] == ["States.Timeout"]]
            assert once["MaxAttempts"] == 1


# --- the same steps as the engine makes ------------------------------------------------------------------------------

Failures = Mapping[tuple[str, bool], tuple[int, str]]  # by step and whether it is undone: how often, and the error


@dataclass
class World:
    """Performs the steps, of which some fail a number of times first, and writes down what it was asked for."""

    failures: Failures
    relayed: bool = True
    calls: list[tuple[str, bool]] = field(default_factory=list)
    refusals: int = 0  # of Lambda's, before it takes a call

    def attempt(self, step: str, undo: bool) -> str | None:
        self.calls.append((step, undo))
        times, error = self.failures.get((step, undo), (0, ""))
        return error if self.calls.count((step, undo)) <= times else None

    @property
    def made(self) -> dict[str, str]:
        return {"relay": "10.0.0.1:8000"} if self.relayed else {}


def by_the_engine(definition: Definition, world: World) -> WorkflowStatus:
    now = 0
    workflow = Workflow(
        id="w", project_id="p", definition=definition.name, name="w", subject="instance/i", backend="ssh",
        began_at=0, step_at=0, last_processed_at=0, due_at=0,
    )  # fmt: skip

    def committed(plan: Plan) -> list[DoStep]:
        nonlocal workflow
        for step in plan.steps:
            workflow = next((noun for noun in step.saves if isinstance(noun, Workflow)), workflow)
        return [act for step in plan.steps for act in step.effects if isinstance(act, DoStep)]

    todo: list[DoStep] = []
    while not workflow.ended:
        if todo:
            act = todo.pop()
            error = world.attempt(act.step, act.undo)
            outcome: Outcome = StepDone(act.unit, act.act_until, tuple(world.made.items()))
            if error is not None:
                outcome = StepFailed(act.unit, error, "it failed", None, act.act_until)
            todo += committed(decide_step(WorkflowSnapshot(now, workflow, definition), outcome))
        else:
            now += HOUR
            todo += committed(decide_workflow(WorkflowSnapshot(now, workflow, definition)))
    return workflow.status


def by_step_functions(machine: Mapping[str, Any], world: World) -> WorkflowStatus:
    now, left = 0, world.refusals

    def invoke(payload: Mapping[str, Any]) -> Mapping[str, str]:
        nonlocal left
        if left:
            left -= 1
            raise type("Lambda.TooManyRequestsException", (Exception,), {})("Rate Exceeded")
        left = world.refusals
        if (error := world.attempt(payload["step"], payload["undo"])) is not None:
            raise type(error, (Exception,), {})("it failed")
        if "token" in payload:
            steps.succeed(payload["token"], world.made)
        return world.made

    steps = StepFunctions({"it": machine}, lambda: now, invoke)
    steps.start("it", "w")
    while (due := steps.next_due) is not None:
        now = max(now, due)
        steps.run()
    last = list(steps.executions.values())[-1]
    return WorkflowStatus.done if last.ended == "SUCCEEDED" else WorkflowStatus.undone


ERRORS = ["Transient", "Unfit", "a bug"]
STEPS = [
    (name, relayed, step)
    for name, definition in WORKFLOWS.items()
    for relayed in (True, False)
    for step in definition.steps
]
CASES = [
    (name, relayed, step.name, times, error)
    for name, relayed, step in STEPS
    for times in (0, 1, 2, 3)
    for error in ERRORS
]
ENDLESS = [(name, step.name) for name, relayed, step in STEPS if step.attempts is None and relayed]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "step"), ENDLESS)
def test_both_try_again_for_ever(name: str, step: str) -> None:
    both_make_the_same_steps(name, True, step, 2600, "Transient")


@each(("name", "relayed", "step", "times", "error"), CASES)
@pytest.mark.slow
def test_both_make_the_same_steps(name: str, relayed: bool, step: str, times: int, error: str) -> None:
    both_make_the_same_steps(name, relayed, step, times, error)


def both_make_the_same_steps(name: str, relayed: bool, step: str, times: int, error: str) -> None:
    """Whichever step fails, and however often: the same attempts, in the same order, with the same end."""
    failures = {(step, False): (times, error), ("install", True): (2, "Unfit")}
    engine, machine = World(failures, relayed), World(failures, relayed)
    assert by_the_engine(WORKFLOWS[name], engine) == by_step_functions(MACHINES[name], machine)
    assert engine.calls == machine.calls


@pytest.mark.parametrize("name", sorted(MACHINES))
@pytest.mark.parametrize("times", [0, 2])
def test_a_call_that_lambda_didnt_take_is_no_attempt(name: str, times: int) -> None:
    """Many hosts are added at once, and share a few executions."""
    step = WORKFLOWS[name].steps[0].name
    free, busy = (World({(step, False): (times, "Transient")}, refusals=refusals) for refusals in (0, 20))
    assert by_step_functions(MACHINES[name], free) is by_step_functions(MACHINES[name], busy) is WorkflowStatus.done
    assert free.calls == busy.calls


def test_every_meaning_is_repeated_as_the_engine_does() -> None:
    for error, meaning in MEANINGS.items():
        world = World({("install", False): (1, error)})
        ended = by_step_functions(MACHINES["add_host"], world)
        assert (ended is WorkflowStatus.done) == meaning.repeat, error


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_cancelled_one_is_undone_at_once(name: str) -> None:
    for step in WORKFLOWS[name].steps:
        world = World({(step.name, False): (10_000, asl.CANCELLED)})
        assert by_step_functions(MACHINES[name], world) is WorkflowStatus.undone
        assert world.calls.count((step.name, False)) == 1
        assert {done for done, undo in world.calls if undo} <= {
            each.name for each in WORKFLOWS[name].steps if each.undo
        }


@pytest.mark.slow
def test_undoing_goes_on_in_another_execution_and_is_never_given_up() -> None:
    world = World({("report", False): (1, "Unfit"), ("install", True): (5000, "Transient")})
    assert by_step_functions(MACHINES["add_host"], world) is WorkflowStatus.undone
    assert world.calls.count(("install", True)) == 5001

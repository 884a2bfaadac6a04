"""Every machine's table, walked: nothing can get stuck, nothing comes back from an end, nothing is unreachable."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chalicelib.engine.kinds import KINDS
from chalicelib.errors import Bug
from chalicelib.machines.job import JOB
from chalicelib.machines.run import observe
from chalicelib.machines.table import StateMachine, allows, apply, mermaid

NOUNS = {row.machine.noun: row.noun for row in KINDS.rows if row.machine is not None and row.noun is not None}
MACHINES = [row.machine for row in KINDS.rows if row.machine is not None]
MODULES = Path(__file__).parents[2] / "chalicelib"
walked = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.noun)


def closure(machine: StateMachine, start: str) -> set[str]:
    seen, todo = {start}, [start]
    while todo:
        new = set(machine.table.get(todo.pop(), {}).values()) - seen
        seen |= new
        todo += new
    return seen


@walked
def test_every_state_has_an_exit_or_is_an_end(machine: StateMachine) -> None:
    for state in machine.states:
        if state in machine.terminal:
            assert not machine.table.get(state), f"{state} is an end and has a way out"
        else:
            assert set(machine.table[state].values()) - {state}, f"{state} has no way out"
            assert closure(machine, state) & machine.terminal, f"no end can be reached from {state}"


@walked
def test_every_state_that_is_no_end_has_a_timeout(machine: StateMachine) -> None:
    assert set(machine.timeouts) == set(machine.table)
    assert all(machine.timeouts.values())


@walked
def test_every_state_can_be_reached(machine: StateMachine) -> None:
    reached = set().union(*(closure(machine, start) for start in machine.initial))
    assert reached == set(machine.states)


@walked
def test_every_edge_leads_to_a_state(machine: StateMachine) -> None:
    for edges in machine.table.values():
        assert set(edges.values()) <= set(machine.states)


@walked
def test_the_statuses_of_the_domain_are_those_of_the_table(machine: StateMachine) -> None:
    known: Any = NOUNS[machine.noun].model_fields["status"].annotation
    reserved = {"fleet": {"submitted", "failed"}}.get(machine.noun, set())  # the wire's, which we never enter
    assert {status.value for status in known} - reserved == set(machine.states)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def of_planning() -> tuple[list[ast.ImportFrom], set[str]]:
    """What all its modules import, and the names that they annotate."""
    nodes = [node for path in (MODULES / "planning").rglob("*.py") for node in ast.walk(parsed(path))]
    annotated = {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)}
    return [node for node in nodes if isinstance(node, ast.ImportFrom)], annotated


@walked
def test_a_number_in_a_timeout_is_a_constants(machine: StateMachine) -> None:
    """A page generated from the table uses planning's own durations: none is written twice."""
    tree = parsed(MODULES / "machines" / f"{machine.noun}.py")
    (timeouts,) = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "timeouts"]
    typed = [node.value for node in ast.walk(timeouts) if isinstance(node, ast.Constant)]
    assert not [text for text in typed if isinstance(text, str) and re.search(r"[0-9]", text)]


@walked
def test_planning_counts_in_the_durations_that_stand_beside_the_table(machine: StateMachine) -> None:
    tree = parsed(MODULES / "machines" / f"{machine.noun}.py")
    named = {ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)}
    imports, annotated = of_planning()
    own_imports = [node for node in imports if node.module == f"chalicelib.machines.{machine.noun}"]
    assert named <= {name.name for node in own_imports for name in node.names}
    assert not named & annotated


def test_an_event_that_the_table_lacks_is_a_bug() -> None:
    assert not allows(JOB, "done", "run")
    with pytest.raises(Bug, match="the event run isn't allowed for a job that is done"):
        apply(JOB, "done", "run")


@pytest.mark.parametrize(
    ("jobs", "event"),
    [
        (["submitted"], "observe_submitted"),
        (["submitted", "provisioning"], "observe_provisioning"),
        (["pulling"], "observe_provisioning"),
        (["provisioning", "running"], "observe_running"),
        (["provisioning", "done"], "observe_running"),
    ],
)
def test_the_most_advanced_job_decides(jobs: list[str], event: str) -> None:
    assert observe(jobs) == event


def test_a_picture_shows_every_edge() -> None:
    drawn = mermaid(JOB)
    assert "[*] --> submitted" in drawn
    assert "provisioning --> submitted: requeue" in drawn
    assert "done --> [*]" in drawn


def test_the_page_of_pictures_is_what_the_tables_say() -> None:
    from docs.draw_states import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m docs.draw_states`"

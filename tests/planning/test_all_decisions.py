"""Decisions with everything that they write, tell, order and wake.

The other tests here say what a decision must come to. `golden/plans.txt` says, for one decision of each kind and its
important branches, that it comes to nothing else and that nothing of it is missing. For further branches it is enough
what they come to: that stands with the situation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.planning.machines.instance import InstancePass
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.planning.runs.timeouts import CHECKS
from tests.harness import golden
from tests.harness.rows import each
from tests.planning.situations import ALL
from tests.world.nouns import lint
from tests.world.plan_text import outline, plan_text

PLANS = Path(__file__).parent / "golden" / "plans.txt"


@each("name", [name for name, situation in ALL.items() if situation.comes_to])
@pytest.mark.slow
def test_a_decision_comes_to(name: str) -> None:
    snapshot, plan = ALL[name].decide()
    assert lint(snapshot, plan) == []
    assert outline(plan, snapshot.nouns(), snapshot.now) == ALL[name].comes_to


INSTANCE_QUESTIONS = (
    "first_report",
    "overdue",
    "silence",
    "surplus",
    "address",
    "scheduled_end",
    "detaching",
    "clearing",
)


@each("name", ALL)
@pytest.mark.slow
def test_a_question_changes_nothing(name: str) -> None:
    snapshot, _ = ALL[name].decide()
    if isinstance(snapshot, InstanceSnapshot):
        machine = InstancePass(snapshot)
        for question in INSTANCE_QUESTIONS:
            getattr(machine, f"_{question}")()
        assert machine.draft.empty and machine.instance is snapshot.instance
    if isinstance(snapshot, RunSnapshot):
        run = RunPass(snapshot)
        for job in run.latest():
            for question in CHECKS:
                question(run, job)
        assert run.draft.empty and not run.deadlines and tuple(run.jobs.values()) == tuple(snapshot.jobs)


@pytest.mark.slow
def test_plans_are_whole() -> None:
    sections = []
    for name, situation in ALL.items():
        if not situation.comes_to:
            snapshot, plan = situation.decide()
            assert lint(snapshot, plan) == [], name
            sections.append(f"## {name}\n{plan_text(plan, snapshot.nouns(), snapshot.now)}\n")
    golden.check(PLANS, "\n".join(sections))

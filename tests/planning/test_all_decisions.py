"""Each decision once, with everything that it writes, tells, orders and wakes: `golden/plans.txt`.

The other tests here say what a decision must come to. These say that it comes to nothing else, and that nothing of it
is missing. `GOLDEN=write python -m pytest tests/planning/test_all_decisions.py` writes them anew; read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from chalicelib.planning.machines.instance import InstancePass
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.snapshot import RunSnapshot
from chalicelib.planning.runs.timeouts import QUESTIONS
from tests.planning import situations
from tests.world.nouns import lint
from tests.world.told import told

GOLDEN = Path(__file__).parent / "golden" / "plans.txt"


def decided(situation: Callable[[], situations.Decided]) -> str:
    snapshot, plan = situation()
    ask(snapshot)
    assert lint(snapshot, plan) == []
    return told(plan, snapshot.nouns(), snapshot.now)


def ask(snapshot: object) -> None:
    """What reads like a question changes nothing."""
    if isinstance(snapshot, InstanceSnapshot):
        machine = InstancePass(snapshot)
        for name in ("first_report", "overdue", "silence", "surplus", "address", "known_end", "detaching", "clearing"):
            getattr(machine, f"_{name}")()
        assert machine.draft.empty and machine.instance is snapshot.instance
    if isinstance(snapshot, RunSnapshot):
        run = RunPass(snapshot)
        for job in run.latest():
            for question in QUESTIONS:
                question(run, job)
        assert run.draft.empty and not run.deadlines and tuple(run.jobs.values()) == tuple(snapshot.jobs)


def kept() -> dict[str, str]:
    sections = GOLDEN.read_text(encoding="utf-8").split("## ")[1:] if GOLDEN.exists() else []
    return {name: text.strip() for name, _, text in (section.partition("\n") for section in sections)}


@pytest.mark.parametrize("name", situations.ALL)
def test_a_decision_is_what_it_was(name: str) -> None:
    found = decided(situations.ALL[name])
    if os.environ.get("GOLDEN") == "write":
        texts = {**kept(), name: found}
        lines = [f"## {each}\n{texts[each]}\n" for each in situations.ALL if each in texts]
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("\n".join(lines), encoding="utf-8")
    assert found == kept()[name]


def test_no_plan_is_kept_of_a_situation_that_is_gone() -> None:
    assert set(kept()) == set(situations.ALL)

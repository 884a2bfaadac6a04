"""A noun unknown to the simulation takes part in whole histories through its row, its family and its story."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.engine.effects.table import FAMILIES
from chalicelib.engine.kinds import KINDS
from chalicelib.planning.kernel.plan import Plan, Step
from tests.engine import leases
from tests.engine.leases import Lease, Leases, LeaseStatus
from tests.simulation.history import History
from tests.simulation.plane import Parts
from tests.simulation.stories import STORIES, Story
from tests.simulation.stories.commits import EVENTS_MATCH
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

LEASES_END = Invariant("leases end", "a lease is closed some time after its time is up")


class Leasing(Story):
    def plan(self) -> None:
        for number in range(3):
            self.sometime(lambda number=number: self._take(f"lease-{number}"), 0, FAULTY_FOR)  # type: ignore[misc]

    def _take(self, name: str) -> None:
        leases.take(self.site.store, name, self.world.now(), self.scene.projects[0].id)

    def unfinished(self) -> Iterator[Violation]:
        for lease in self.watch.known[Lease].values():
            if lease.status is not LeaseStatus.closed:
                yield LEASES_END.broken(f"{lease.name} is {lease.status}")


def play(parts: Parts, seed: int) -> list[Lease]:
    history = History(seed, parts, (*STORIES, Leasing))
    history.play()
    return list(history.scene.watch.known[Lease].values())


@pytest.mark.parametrize("seed", range(3))
def test_its_histories_end_well(seed: int) -> None:
    played = play(Parts(kinds=leases.WITH_LEASES, families=(*FAMILIES, Leases)), seed)
    assert [lease.status for lease in played] == [LeaseStatus.closed] * 3


def test_a_bug_of_its_own_is_found_by_its_own_invariant() -> None:
    """An effect whose outcome says nothing: the lease is returned again and again, and never closed."""
    deaf = leases.WITH_LEASES.deciding("lease", conclude=lambda snapshot, outcome: Plan())
    with pytest.raises(Violation) as violation:
        play(Parts(kinds=deaf, families=(*FAMILIES, Leases)), 0)
    assert violation.value.invariant is LEASES_END


def test_everybodys_invariants_hold_for_it() -> None:
    def silent(snapshot: leases.LeaseSnapshot) -> Plan:
        plan = leases.decide(snapshot)
        return Plan(tuple(Step(step.saves, (), step.effects) for step in plan.steps), (), plan.next_wake)

    untold = leases.WITH_LEASES.deciding("lease", decide=silent)
    untold.rules = KINDS.rules
    with pytest.raises(Violation) as violation:
        play(Parts(kinds=untold, families=(*FAMILIES, Leases)), 0)
    assert violation.value.invariant is EVENTS_MATCH

"""A plan's invariants, checked before any of it is committed.

The invariants are written independently of the code that decides. The rules for every noun are here: a status follows
an edge of its table and leaves an event, a noun is created with an event, and a plan wakes only the units it may wake.
Rules for one kind of noun are in the `invariants` of its room. A plan that breaks a rule is a bug and is dropped as a
whole; the message names the noun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.noun import Noun
from chalicelib.machines.table import StateMachine
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.snapshot import Snapshot

Known = dict[tuple[type, str], Noun]
StepRule = Callable[[Step, Known], Iterable[str]]
PlanRule = Callable[[Snapshot, Plan], Iterable[str]]

_REACHABLE: dict[tuple[str, str], frozenset[str]] = {}


@dataclass(frozen=True)
class Rules:
    """The rules that plans are checked against; built from the table of nouns."""

    machines: Mapping[type[Noun], StateMachine]
    wakers: Mapping[str, frozenset[str]]  # kind of unit → the kinds whose plans may wake it
    steps: tuple[StepRule, ...] = ()
    plans: tuple[PlanRule, ...] = ()

    def broken(self, snapshot: Snapshot, plan: Plan) -> list[str]:
        """What is wrong with a plan; empty if it may be committed."""
        if not plan.steps:
            return []  # every second pass changes nothing, whatever it has read
        known: Known = {(type(noun), id_of(noun)): noun for noun in snapshot.nouns()}
        found: list[str] = []
        for step in plan.steps:
            found += self._changes(step, known)
            found += self._wakes(snapshot, step)
            for rule in self.steps:
                found += rule(step, known)
            known.update({(type(noun), id_of(noun)): noun for noun in step.saves})
        for plan_rule in self.plans:
            found += plan_rule(snapshot, plan)
        return found

    def _changes(self, step: Step, known: Known) -> Iterator[str]:
        """A status follows its table, a final state is final, and every status change has an event."""
        recorded = {target.id for event in step.events for target in event.targets}
        keys = [(type(noun), id_of(noun)) for noun in step.saves]
        if len(set(keys)) < len(keys):
            yield "a noun is saved twice in one step"
        for noun in step.saves:
            machine = self.machines.get(type(noun))
            if machine is not None:
                yield from _change(noun, machine, known.get((type(noun), id_of(noun))), recorded)

    def _wakes(self, snapshot: Snapshot, step: Step) -> Iterator[str]:
        by = snapshot.unit.partition("/")[0]
        for unit in step.wake:
            kind = unit.partition("/")[0]
            if kind not in self.wakers:
                yield f"{unit} is woken, but isn't a known kind of unit"
            elif by and by not in self.wakers[kind]:
                yield f"{snapshot.unit} may not wake {unit}"


def id_of(noun: Noun) -> str:
    return str(getattr(noun, "id", id(noun)))


def reaches(machine: StateMachine, start: str) -> frozenset[str]:
    """Every state reachable from `start`."""
    key = (machine.noun, start)
    if key not in _REACHABLE:
        seen, todo = {start}, [start]
        while todo:
            new = set(machine.table.get(todo.pop(), {}).values()) - seen
            seen |= new
            todo += new
        _REACHABLE[key] = frozenset(seen)
    return _REACHABLE[key]


def _change(new: Any, machine: StateMachine, old: Any, recorded: set[str]) -> Iterator[str]:
    name = f"{machine.noun} {new.name}"
    if old is None:
        if new.version or new.status not in machine.initial:
            yield f"{name} can't be created as {new.status}"
        if new.id not in recorded:
            yield f"{name} is created without an event"
        return
    before = str(old.status)
    if new.status == before:
        return
    if new.status not in reaches(machine, before):
        yield f"{name} can't become {new.status}: it is {before}"
    if new.id not in recorded:
        yield f"{name} becomes {new.status} without an event"

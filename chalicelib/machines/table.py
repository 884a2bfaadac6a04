"""What a state machine is, and the one function that follows it.

Rule 1: a status changes only by `apply`. Rule 2: an event that the table doesn't list for a state is a bug, not a
no-op; who may meet a late or repeated event asks `allows` first. Rule 3: terminal states have no way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chalicelib.errors import Bug


@dataclass(frozen=True)
class Machine:
    """`table[state][event] -> state`; `timeouts` names, for each non-terminal state, the deadline that gets it out."""

    noun: str
    initial: tuple[str, ...]
    terminal: frozenset[str]
    table: Mapping[str, Mapping[str, str]]
    timeouts: Mapping[str, str] = field(default_factory=dict)

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.table, *self.terminal)))


def allows(machine: Machine, state: str, event: str) -> bool:
    return event in machine.table.get(state, {})


def apply(machine: Machine, state: str, event: str) -> str:
    """The state after `event`. Raises Bug where the table has no such edge."""
    try:
        return machine.table[state][event]
    except KeyError:
        raise Bug(f"a {machine.noun} that is {state} can't take the event {event}") from None


def mermaid(machine: Machine) -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in machine.initial]
    for state, edges in machine.table.items():
        merged: dict[str, list[str]] = {}
        for event, target in edges.items():
            merged.setdefault(target, []).append(event)
        lines += [f"    {state} --> {target}: {', '.join(events)}" for target, events in merged.items()]
    lines += [f"    {state} --> [*]" for state in sorted(machine.terminal)]
    return "\n".join(lines)

"""What a state machine is, and the one function that runs it.

Rule 1: a status changes only by `apply`. Rule 2: an event that the table doesn't list for a state is a bug, not a
no-op; code that may get a late or repeated event checks `allows` first. Rule 3: terminal states have no transitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from chalicelib.errors import Bug


@dataclass(frozen=True)
class StateMachine:
    """`table[state][event] -> state`; `timeouts` names, for each non-terminal state, the deadline that moves it on.

    Durations are defined beside the table that names them, and planning uses the same constants.
    """

    noun: str
    initial: tuple[str, ...]
    terminal: frozenset[str]
    table: Mapping[str, Mapping[str, str]]
    timeouts: Mapping[str, str] = field(default_factory=dict)

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.table, *self.terminal)))


def allows(machine: StateMachine, state: str, event: str) -> bool:
    return event in machine.table.get(state, {})


def apply(machine: StateMachine, state: str, event: str) -> str:
    """The state after `event`. Raises Bug if the table has no such edge."""
    try:
        return machine.table[state][event]
    except KeyError:
        raise Bug(f"the event {event} isn't allowed for a {machine.noun} that is {state}") from None


def mermaid(machine: StateMachine) -> str:
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

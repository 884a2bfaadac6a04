"""Writes `docs/states.md` from the tables in `chalicelib/machines`: `python -m docs.draw_states`."""

from __future__ import annotations

from pathlib import Path

from chalicelib.engine.kinds import KINDS
from chalicelib.machines.table import StateMachine, mermaid

PAGE = Path(__file__).parent / "states.md"

_INTRO = """# States

The states of runs, jobs, instances, fleets, volumes, gateways, certificates, gangs and workflows, and the events that
move them. This page is generated from the tables in `chalicelib/machines` (`python -m docs.draw_states`), which alone
define every change.

Every state that isn't final has a deadline that moves it on, listed below its diagram.
"""

_ABOUT = {
    "run": "A run's status is derived from its jobs; `pending` waits for the next attempt of a retry.",
    "job": "A job is one attempt to run. A retry creates a new job; a finished job never changes again.",
    "instance": "An instance is `terminated` only when the cloud confirms that nothing is left.",
    "fleet": "A deleted fleet stays `terminating` until its last instance is gone.",
    "volume": "A volume is `deleted` only when its provider confirms it; an external one stays there.",
    "gateway": "A gateway is `running` once all its replicas take requests, and `deleted` once no machine has one.",
    "certificate": "A certificate is asked for at an authority, step by step. What was issued before serves meanwhile.",
    "gang": "The places of one attempt of a task on several nodes: all of them, or none.",
    "workflow": "A fixed sequence of steps, such as setting up a host. It is finished, or undone to the last step.",
}


def section(machine: StateMachine) -> str:
    rows = "\n".join(f"| `{state}` | {timeout} |" for state, timeout in machine.timeouts.items())
    title = machine.noun.capitalize()
    picture = f"```mermaid\n{mermaid(machine)}\n```"
    return f"## {title}\n\n{_ABOUT[machine.noun]}\n\n{picture}\n\n| state | leaves it by |\n|---|---|\n{rows}\n"


def page() -> str:
    machines = {row.name: row.machine for row in KINDS.rows if row.machine is not None}
    in_order = sorted(machines, key=list(_ABOUT).index)  # one that isn't described there fails here
    return "\n".join([_INTRO, *(section(machines[name]) for name in in_order)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""Writes `docs/states.md` from the tables in `chalicelib/machines`: `python -m docs.draw_states`."""

from __future__ import annotations

from pathlib import Path

from chalicelib.machines.fleet import FLEET
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.job import JOB
from chalicelib.machines.run import RUN
from chalicelib.machines.table import Machine, mermaid

PAGE = Path(__file__).parent / "states.md"

_INTRO = """# States

What a run, a job, an instance and a fleet may be, and what moves them. This page is generated from the tables in
`chalicelib/machines` (`python -m docs.draw_states`), which are the only way to a new status.

Each state that isn't an end has a deadline that gets it out, named below its picture.
"""

_ABOUT = {
    "run": "A run's status is folded from its jobs; `pending` waits for the next attempt of a retry.",
    "job": "A job is one attempt to run. A retry makes a new job; an ended one never changes again.",
    "instance": "`terminated` is written only when the cloud says that nothing is left.",
    "fleet": "A fleet that is deleted stays `terminating` until its last instance is gone.",
}


def section(machine: Machine) -> str:
    rows = "\n".join(f"| `{state}` | {timeout} |" for state, timeout in machine.timeouts.items())
    title = machine.noun.capitalize()
    picture = f"```mermaid\n{mermaid(machine)}\n```"
    return f"## {title}\n\n{_ABOUT[machine.noun]}\n\n{picture}\n\n| state | gets out by |\n|---|---|\n{rows}\n"


def page() -> str:
    return "\n".join([_INTRO, *(section(machine) for machine in (RUN, JOB, INSTANCE, FLEET))])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

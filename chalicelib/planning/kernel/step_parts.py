"""A step too large for one commit, in parts that may be committed one after the other.

A job, its machine and their events stay together, so that a place and its claim still change in one commit. The run
itself comes last, and every part includes the run as it was read. If somebody else changes the run, or takes a machine
of one part, the later parts aren't committed, and the next pass decides again from what has been.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.events import Event
from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run
from chalicelib.planning.kernel.plan import Step

MOST = 90  # records of one part; a commit has room for a hundred


def in_parts(step: Step, run: Run) -> Iterator[Step]:
    """The parts of a step that is too large for one commit. `run`: as it was read."""
    if len(step.saves) + len(step.events) <= MOST:
        yield step
        return
    groups: dict[str, list[Noun]] = {}
    ungrouped: list[Noun] = []
    of: dict[str, str] = {}  # id of a job or a machine → its group
    for noun in step.saves:
        if isinstance(noun, Job | Instance):
            at = noun.id if isinstance(noun, Instance) or noun.assignment is None else noun.assignment.instance_id
            groups.setdefault(at, []).append(noun)
            of[noun.id] = at
        else:
            ungrouped.append(noun)
    events_of: dict[str, list[Event]] = {}
    for event in step.events:
        events_of.setdefault(of.get(event.targets[0].id, ""), []).append(event)
    part, size = Step((run,)), 1
    for at, saves in groups.items():
        events = events_of.get(at, [])
        more = len(saves) + len(events)
        if size + more > MOST:
            yield part
            part, size = Step((run,)), 1
        part = Step((*part.saves, *saves), (*part.events, *events))
        size += more
    yield part
    yield Step(tuple(ungrouped) or (run,), tuple(events_of.get("", [])), step.effects, step.wake)

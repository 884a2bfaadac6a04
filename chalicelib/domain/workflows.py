"""A workflow: a fixed sequence of steps about one unit, which is finished or undone whatever happens in between.

The record contains its position and the ids of what it created, but no key or password: every step reads those again.
The steps are declared in planning; `engine/workflows.py` lists them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun

ENDED_TTL: Micros = 7 * DAY  # how long the record of an ended workflow is kept


class Driver(StrEnum):
    """What triggers the attempts."""

    passes = "looks"  # the engine's passes over due units; stored under its former name
    execution = "execution"  # an execution of a state machine, which requests each attempt


class WorkflowStatus(StrEnum):
    running = "running"
    done = "done"
    undoing = "undoing"
    undone = "undone"


def workflow_id(subject: str, definition: str, epoch: int = 0) -> str:
    """The id of a unit's workflow, so that it can be read by key before an index shows it."""
    return derive(subject, definition, epoch)


class Workflow(Noun):
    kind: ClassVar[str] = "workflow"
    in_fleet: ClassVar[str] = "fleet_id"

    id: str
    project_id: str
    definition: str
    name: str  # of its subject, for people
    subject: str  # the unit that waits for its end: `instance/<id>`
    backend: str  # where its steps are executed, so that a queue can route them
    fleet_id: str | None = None
    status: WorkflowStatus = WorkflowStatus.running
    step: int = 0  # index of the step that is done or undone next
    failures: int = 0  # of this step, in a row
    cancelled: bool = False  # its result is no longer wanted
    reason: str | None = None  # why it is undone, or why the step's last attempt failed: the name of an error
    message: str = ""
    state: dict[str, str] = {}  # ids of what its steps created
    began_at: Micros
    step_at: Micros  # when this step was first tried
    last_processed_at: Micros
    finished_at: Micros | None = None
    act_until: Micros | None = None  # until then an attempt may be in flight, and only its committer acts
    due_at: Micros | None = None
    driver: Driver = Driver.passes
    starts: int = 0  # executions that were started since one last requested an attempt
    token: str = ""  # of the callback that an execution waits for at this step

    @property
    def unit(self) -> str:
        return f"workflow/{self.id}"

    @property
    def ended(self) -> bool:
        return self.status in (WorkflowStatus.done, WorkflowStatus.undone)

    def place(self) -> keys.Place:
        expires_at = None if self.finished_at is None else (self.finished_at + ENDED_TTL) // SECOND
        return keys.Place(keys.workflow(self.id), due=keys.due(self.unit, self.due_at), expires_at=expires_at)

    def parent(self) -> tuple[str, str, str]:
        kind, _, subject_id = self.subject.partition("/")
        return kind, subject_id, self.name

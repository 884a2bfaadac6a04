"""A workflow: a fixed sequence of steps about one unit, which is finished or undone whatever happens in between.

The record holds where it stands and ids of what it made, never a key or a password: every step reads those again.
Its steps are declared in planning (`engine/workflows.py` lists them).
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun

ENDED_TTL: Micros = 7 * DAY  # after its end


class Driver(StrEnum):
    """Who makes the attempts."""

    looks = "looks"  # of the engine, at what is due
    execution = "execution"  # of a state machine, which asks for each


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
    name: str  # of what it is about, for people
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
    driver: Driver = Driver.looks
    starts: int = 0  # how often an execution was started since one last asked for an attempt
    token: str = ""  # with which an execution waits for this step

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

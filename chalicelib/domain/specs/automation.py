"""Specs of automation: filters for state changes, and the order that a rule gives."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from chalicelib.domain.automations import Automation
from chalicelib.domain.events import EventType
from chalicelib.domain.specs.reading import Reads, Spec
from chalicelib.domain.state_changes import StateChange

Action = Literal["apply", "stop", "delete"]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]
Text = Annotated[str, Field(min_length=1, max_length=200)]


def _listed(written: Any) -> Any:
    return [written] if isinstance(written, str) else written


Texts = Annotated[tuple[Text, ...], Field(min_length=1), Reads(_listed, ({"type": "string"},))]
Types = Annotated[tuple[EventType, ...], Field(min_length=1), Reads(_listed, ({"type": "string"},))]


class ChangeFilter(Spec):
    """State changes, by what they are about. What isn't given may be anything."""

    project: Texts | None = Field(default=None, description="The project's name.")
    target: Texts | None = Field(default=None, description="The type of what has changed: `run`, `job`, `fleet`, …")
    name: Texts | None = Field(default=None, description="The name of what has changed.")
    type: Types | None = Field(default=None, description="What happened: `created`, `status`, `deleted`, …")
    status: Texts | None = Field(default=None, description="The status that it has now: `failed`, `done`, …")
    reason: Texts | None = Field(default=None, description="Why: `job_failed`, `stopped_by_user`, …")

    def has(self, change: StateChange) -> bool:
        return (
            (self.project is None or (change.project is not None and change.project.name in self.project))
            and (self.target is None or change.target.type in self.target)
            and (self.name is None or change.target.name in self.name)
            and (self.type is None or change.type in self.type)
            and (self.status is None or change.after in self.status)
            and (self.reason is None or change.reason in self.reason)
        )


class AutomationOrder(Spec):
    """The order of a rule about one event."""

    rule: Name = Field(description="The rule's name.")
    event: Text = Field(description="The event's id.")
    project: Text = Field(description="The project of the configuration.")
    configuration: Text = Field(description="The name of the stored configuration.")
    action: Action = Field(description="What to do with what it describes.")


def is_of_automation(change: StateChange) -> bool:
    """Is this a change that rules caused? Rules ignore those: a refused order would trigger itself again."""
    return change.target.type == Automation.kind

"""A plan: what to write, what to do once it is written, and why.

The engine commits `saves` and `events` together, under the version each noun was read at, and only then executes
`effects`. A plan that saves nothing and has no effect found nothing to do.

An effect names its unit, its backend, and the time until which nobody else acts. The engine has a table of handlers;
the result comes back as an outcome, and the unit's own decision interprets it.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.events import Event
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


@dataclass(frozen=True)
class Note:
    """Why a candidate was ruled out, or what a job waits for; shown to the user."""

    subject: str  # the candidate: a fleet, an instance, an offer
    text: str
    hint: str = ""
    waits: bool = False  # a job waits until this changes; trying again earlier is pointless


@dataclass(frozen=True)
class Effect:
    """Something to do at a provider, once its intent is committed."""

    unit: str  # `instance/<id>`
    backend: str  # the provider it goes to, so that a queue can route it
    act_until: Micros  # after this, only a later pass may repeat it
    project_id: str = ""  # projects take turns where many effects wait


@dataclass(frozen=True)
class Step:
    """What must be committed together: one placement, one end. A conflict drops a step, not the whole plan.

    Steps are committed in order. A noun saved by several of them has in each the version it was read at; the committer
    applies each on top of the one before.
    """

    saves: tuple[Noun, ...] = ()
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    wake: tuple[str, ...] = ()  # units that a pass has to check once this is committed


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...] = ()
    notes: tuple[Note, ...] = ()
    next_wake: Micros | None = None  # when the next pass over this unit is due, even if nothing happens

    @property
    def empty(self) -> bool:
        return not any(step.saves or step.effects for step in self.steps)


# --- outcomes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """The result of an effect on `unit`, without interpretation."""

    unit: str


@dataclass(frozen=True)
class Failed(Outcome):
    """The backend raised an error, in our vocabulary."""

    error: str  # the class name of a BackendError
    message: str
    retry_after: float | None = None  # seconds, if the provider sets some

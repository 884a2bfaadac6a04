"""A plan: what to write, what to do after it is written, and why.

The engine commits `saves`, `deletes` and `events` in one go, under the version each noun was read at, and only then
executes `effects`. A plan that saves nothing and has no effect is a look that found nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.events import Event
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


@dataclass(frozen=True)
class Note:
    """Why a candidate was refused, or what is waited for; it becomes what the user reads."""

    subject: str  # the candidate: a fleet, an instance, an offer
    text: str
    hint: str = ""


@dataclass(frozen=True)
class Create:
    """Buy the machine of a committed `pending` instance. Idempotent by its token.

    `act_until` is the engine's to fill, from the instance as committed: an effect that finds another value there
    belongs to an older commit and isn't executed.
    """

    instance_id: str
    act_until: Micros | None = None


@dataclass(frozen=True)
class Describe:
    instance_id: str


@dataclass(frozen=True)
class Terminate:
    """Give the machine back. Repeated until the cloud says Gone."""

    instance_id: str


Effect = Create | Describe | Terminate


@dataclass(frozen=True)
class Step:
    """What must be committed together: one placement, one end. A conflict undoes a step, not the whole plan.

    Steps are committed in order. A noun that several of them save carries in all the version it was read as; the
    committer puts each on top of the one before.
    """

    saves: tuple[Noun, ...] = ()
    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    wake: tuple[str, ...] = ()  # units to look at once this is committed


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...] = ()
    notes: tuple[Note, ...] = ()
    next_wake: Micros | None = None  # look at this unit again then, even if nothing happens

    @property
    def empty(self) -> bool:
        return not any(step.saves or step.effects for step in self.steps)


# --- what an effect came to ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Created:
    """`create` ran to its end; the handles were checkpointed as they were yielded."""

    instance_id: str


@dataclass(frozen=True)
class CreateFailed:
    """`error` is the class name of a BackendError; `planning.instance` decides which are worth repeating."""

    instance_id: str
    error: str
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True)
class Described:
    """`state` is `pending`, `running` or `gone`."""

    instance_id: str
    state: str
    hostname: str = ""
    internal_ip: str = ""
    interrupted: bool = False


@dataclass(frozen=True)
class EndFailed:
    """Describe or terminate failed, or the machine is still going. Asked again later."""

    instance_id: str
    error: str
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True)
class Ended:
    """The cloud says it is gone."""

    instance_id: str


Outcome = Created | CreateFailed | Described | EndFailed | Ended

"""Effects on bought machines, and their outcomes: the family of effects about an instance.

A purchase carries the `act_until` it was committed with. Until then only its committer executes it, and starts no call
that might still run when others may act (`may_begin`); whoever comes later looks for the machine first. Describing and
terminating can be repeated without harm; their `act_until` only keeps a backed-up queue from repeating them for
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.planning.plan import Effect, Failed, Outcome

PATIENCE: Micros = MINUTE  # a describe or terminate that is later than this is dropped


@dataclass(frozen=True)
class Create(Effect):
    """Buy the machine of a committed `pending` instance. Idempotent by its token."""


@dataclass(frozen=True)
class Describe(Effect):
    """Ask what the provider knows of the machine."""


@dataclass(frozen=True)
class Terminate(Effect):
    """Give the machine back. Repeated until the cloud says Gone."""


def create(instance: Instance) -> Create:
    """The purchase that `instance`, which is being saved, intends."""
    return Create(unit_of(instance), instance.offer.backend, instance.act_until or 0)


def describe(instance: Instance, again_at: Micros) -> Describe:
    return Describe(unit_of(instance), instance.offer.backend, again_at + PATIENCE)


def terminate(instance: Instance, again_at: Micros) -> Terminate:
    return Terminate(unit_of(instance), instance.offer.backend, again_at + PATIENCE)


def unit_of(instance: Instance) -> str:
    return f"instance/{instance.id}"


def act_until(now: Micros, facts: BackendFacts) -> Micros:
    """Until when only the committer of a purchase acts: by then its calls have ended and their results are visible."""
    return now + facts.create_timeout + facts.visibility_lag


def may_begin(instance: Instance, effect: Create, facts: BackendFacts, now: Micros) -> bool:
    """Is this purchase still wanted as committed, and is there time for another call before others may act?"""
    if instance.status is not InstanceStatus.pending or instance.act_until != effect.act_until:
        return False
    return now <= effect.act_until - facts.visibility_lag - facts.create_timeout // 2


# --- what can come of it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bought(Outcome):
    """`create` ran to its end; the handles were written down as they were yielded."""

    epoch: int
    act_until: Micros


@dataclass(frozen=True)
class NotBought(Failed):
    """`create` failed. The fields say which purchase."""

    epoch: int = 0
    act_until: Micros = 0


@dataclass(frozen=True)
class Seen(Outcome):
    """What the provider says of the machine; `gone`: it knows of none, or of none yet."""

    epoch: int
    state: Literal["pending", "running", "gone"]
    hostname: str = ""
    internal_ip: str = ""
    interrupted: bool = False


@dataclass(frozen=True)
class Left(Outcome):
    """After everything that was known or listed was asked to end: what is still there, in words; empty: all is gone."""

    epoch: int
    began: Micros  # when the looking began,
    open_until: Micros | None = None  # and the purchase that was open then: it may have made something unseen since
    going: str = ""


@dataclass(frozen=True)
class NotDone(Failed):
    """Describe or terminate failed."""

    epoch: int = 0

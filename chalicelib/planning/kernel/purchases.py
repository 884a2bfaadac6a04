"""Effects on bought machines, and their outcomes.

A purchase carries the `act_until` it was committed with. Until then only its committer executes it, and starts no call
that might still run when others may act (`may_begin`); a later pass looks for the machine first. Describe and terminate
can be repeated without harm; their `act_until` only keeps a backed-up queue from repeating them in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.planning.kernel.plan import Effect, Failed, Outcome, Step

PATIENCE: Micros = MINUTE  # a describe or terminate later than this is dropped


@dataclass(frozen=True)
class Create(Effect):
    """Buy the machine of a committed `pending` instance. Idempotent by its token."""


@dataclass(frozen=True)
class CreateSeveral(Effect):
    """The same for several instances of one fleet, whose backend creates them in one call."""

    units: tuple[str, ...] = ()

    def each(self) -> Iterator[Create]:
        for unit in self.units:
            yield Create(unit, self.backend, self.act_until, self.project_id)


@dataclass(frozen=True)
class Describe(Effect):
    """Ask what the provider knows about the machine."""

    together: int = 0  # how many machines its backend describes in one call


@dataclass(frozen=True)
class DescribeSeveral(Effect):
    """The same for several machines of one account."""

    units: tuple[str, ...] = ()


@dataclass(frozen=True)
class Terminate(Effect):
    """Release the machine. Repeated until the provider answers `Gone`."""


def create(instance: Instance) -> Create:
    """The purchase intended by `instance`, which is being saved."""
    return Create(unit_of(instance), instance.offer.backend, instance.act_until or 0, instance.project_id)


def batch_creates(step: Step, facts: Mapping[str, BackendFacts]) -> Step:
    """The step with its purchases combined into as few calls as their backends allow."""
    alike: dict[tuple[str, Micros], list[Create]] = {}
    for effect in step.effects:
        if isinstance(effect, Create):
            alike.setdefault((effect.backend, effect.act_until), []).append(effect)
    effects = [effect for effect in step.effects if not isinstance(effect, Create)]
    for (backend, until), creates in alike.items():
        most = max(1, facts[backend].batch if backend in facts else 1)
        for start in range(0, len(creates), most):
            some = creates[start : start + most]
            units = tuple(each.unit for each in some)
            several = CreateSeveral(units[0], backend, until, some[0].project_id, units)
            effects.append(several if len(some) > 1 else some[0])
    return replace(step, effects=tuple(effects))


def describe(instance: Instance, again_at: Micros, facts: BackendFacts) -> Describe:
    until, backend = again_at + PATIENCE, instance.offer.backend
    return Describe(unit_of(instance), backend, until, instance.project_id, facts.describes)


def batch_describes(effects: Iterable[Effect]) -> Iterator[Effect]:
    """Effects whose intents are committed, with `Describe`s combined that one call of their backend can answer."""
    alike: dict[tuple[str, str, int], list[Describe]] = {}
    for effect in effects:
        if isinstance(effect, Describe) and effect.together > 1:
            alike.setdefault((effect.project_id, effect.backend, effect.together), []).append(effect)
        else:
            yield effect
    for (project_id, backend, most), describes in alike.items():
        for start in range(0, len(describes), most):
            some = describes[start : start + most]
            units = tuple(each.unit for each in some)
            until = min(each.act_until for each in some)
            yield DescribeSeveral(units[0], backend, until, project_id, units) if len(some) > 1 else some[0]


def terminate(instance: Instance, again_at: Micros) -> Terminate:
    return Terminate(unit_of(instance), instance.offer.backend, again_at + PATIENCE, instance.project_id)


def after_change(instance: Instance, now: Micros, facts: BackendFacts, *, gone: bool) -> Effect | None:
    """What to do at once, since its provider reports that the machine has changed. It would be done later anyway."""
    if instance.status is InstanceStatus.terminated:
        return None
    if instance.status is InstanceStatus.terminating:
        return terminate(instance, now) if gone else None
    return describe(instance, now, facts)  # of one that is being bought: once its purchase has been concluded


def unit_of(instance: Instance) -> str:
    return f"instance/{instance.id}"


def act_until(now: Micros, facts: BackendFacts) -> Micros:
    """Until when only a purchase's committer acts: by then its calls have ended and their results are visible."""
    return now + confirmation_delay(facts)


def confirmation_delay(facts: BackendFacts) -> Micros:
    """The least time between two listings that confirm each other: neither the provider's lag nor a call in flight can
    explain both."""
    return facts.visibility_lag + facts.create_timeout


def may_begin(instance: Instance, effect: Effect, facts: BackendFacts, now: Micros) -> bool:
    """Does the instance still want this purchase, and is there time for another call before others may act?"""
    if instance.status is not InstanceStatus.pending or instance.act_until != effect.act_until:
        return False
    return now <= effect.act_until - facts.visibility_lag - facts.create_timeout // 2


# --- their outcomes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bought(Outcome):
    """`create` completed; each handle was saved as it was yielded."""

    epoch: int
    act_until: Micros


@dataclass(frozen=True)
class NotBought(Failed):
    """`create` failed. The fields identify the purchase."""

    epoch: int = 0
    act_until: Micros = 0


@dataclass(frozen=True)
class Seen(Outcome):
    """The machine as the provider describes it. `gone`: it knows no such machine, or not yet. `refused`: the creation
    failed after the call had succeeded; a key of `MEANINGS`."""

    epoch: int
    state: Literal["pending", "running", "gone"]
    hostname: str = ""
    internal_ip: str = ""
    interrupted: bool = False
    reclaim_at: Micros | None = None  # if it is interrupted, and the provider says when
    refused: str = ""
    message: str = ""


@dataclass(frozen=True)
class Left(Outcome):
    """What is left after the termination of everything known or listed was requested. `going` describes it; empty:
    nothing is left."""

    epoch: int
    began: Micros  # when the check began
    open_until: Micros | None = None  # `act_until` of a purchase open at that time: it may have created something since
    going: str = ""


@dataclass(frozen=True)
class NotDone(Failed):
    """Describe or terminate failed."""

    epoch: int = 0

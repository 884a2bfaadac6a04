"""From plan to store, step by step: what is committed, what that sets off, and what a conflict takes with it.

Rule 1: an effect is handed on only after the commit that intends it. Rule 2: steps of one plan build on each other, so
a later step is committed against the versions that the earlier ones wrote, and when a step is lost to a conflict every
later step that touches the same records is lost with it; the rest stands. Rule 3: who lost must decide again from a
fresh look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.engine.ports import Effects, News
from chalicelib.errors import Bug, Conflict
from chalicelib.planning.plan import Create, Effect, Plan, Step
from chalicelib.store import nouns
from chalicelib.store.port import Key, Put, Store


@dataclass
class Committed:
    """What became of a plan."""

    steps: int = 0
    lost: list[Key] = field(default_factory=list)  # records that somebody else wrote first
    wake: list[str] = field(default_factory=list)  # units that the committed steps ask for


class Committer:
    def __init__(self, store: Store, effects: Effects, news: News) -> None:
        self.store, self.effects, self.news = store, effects, news

    def commit(self, plan: Plan) -> Committed:
        done = Committed()
        written: dict[Key, int] = {}
        lost: set[Key] = set()
        for step in plan.steps:
            puts = [_rebased(nouns.put(noun), written) for noun in (*step.saves, *step.events)]
            touched = {put.key for put in puts}
            effects = [_stamped(effect, step.saves) for effect in step.effects]
            if touched & lost:
                lost |= touched
                continue
            if puts:
                try:
                    self.store.commit(puts)
                except Conflict:
                    done.lost += sorted(touched)
                    lost |= touched
                    continue
            written.update((put.key, put.record.version) for put in puts)
            done.steps += 1
            self._set_off(step, effects)
            done.wake += step.wake
        return done

    def _set_off(self, step: Step, effects: list[Effect]) -> None:
        for effect in effects:
            self.effects.submit(effect)
        concerned = dict.fromkeys(found for noun in step.saves if (found := _agent_of(noun)))
        if concerned:
            self.news(concerned)


def _rebased(put: Put, written: dict[Key, int]) -> Put:
    """`put` on top of what an earlier step of the same plan wrote."""
    version = written.get(put.key)
    if version is None:
        return put
    return Put(replace(put.record, version=version + 1), expect=version)


def _stamped(effect: Effect, saves: Sequence[Noun]) -> Effect:
    """A purchase carries the `act_until` it was committed under, so that only its committer executes it until then."""
    if not isinstance(effect, Create):
        return effect
    until: Micros | None = next(
        (noun.act_until for noun in saves if isinstance(noun, Instance) and noun.id == effect.instance_id), None
    )
    if until is None:
        raise Bug(f"the purchase of instance {effect.instance_id} is planned without committing its act_until")
    return replace(effect, act_until=until)


def _agent_of(noun: Noun) -> str | None:
    """The instance whose agent waits for this change, if any."""
    if isinstance(noun, Job):
        return noun.assignment.instance_id if noun.assignment else None
    return noun.id if isinstance(noun, Instance) else None

"""From plan to store, step by step: what is committed, what that triggers, and what a conflict drops.

Rule 1: an effect is submitted only after the commit that intends it. Rule 2: steps of a plan build on each other, so a
later step is committed against the versions that the earlier ones wrote; when a step loses a conflict, every later step
that touches the same records is dropped with it, and the rest stay. Rule 3: after a conflict, decide again from a fresh
read.

`Door` is for changes that no pass decided: user requests and agent reports. They are plans like any other, checked
against the same rules and committed by the same committer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from chalicelib.domain.keys import Key
from chalicelib.engine.kinds import KINDS, Kinds
from chalicelib.engine.ports import Effects, News, Wake
from chalicelib.errors import Bug, Conflict
from chalicelib.planning.plan import Effect, Plan, Step
from chalicelib.planning.snapshots import Snapshot
from chalicelib.store import nouns
from chalicelib.store.port import Change, Put, Store


@dataclass
class Committed:
    """The result of committing a plan."""

    steps: int = 0
    lost: list[Key] = field(default_factory=list)  # records that somebody else wrote first
    wake: list[str] = field(default_factory=list)  # units that the committed steps wake


class Committer:
    def __init__(self, store: Store, kinds: Kinds, effects: Effects, news: News) -> None:
        self.store, self.kinds, self.effects, self.news = store, kinds, effects, news

    def commit(self, plan: Plan, beside: Sequence[Change] = (), hears: str = "") -> Committed:
        """`beside`: changes committed together with the plan's first step. `hears`: the instance whose agent needs no
        notice, because this commit answers its call."""
        done = Committed()
        written: dict[Key, int] = {}
        lost: set[Key] = set()
        for step in plan.steps or ((Step(),) if beside else ()):
            changes: list[Change] = [_rebased(nouns.put(noun), written) for noun in (*step.saves, *step.events)]
            changes += beside
            beside = ()
            touched = {change.key for change in changes}
            if touched & lost:
                lost |= touched
                continue
            if changes:
                try:
                    self.store.commit(changes)
                except Conflict:
                    done.lost += sorted(touched)
                    lost |= touched
                    continue
            written.update((put.key, put.record.version) for put in changes if isinstance(put, Put))
            done.steps += 1
            self._set_off(step, hears)
            done.wake += step.wake
        return done

    def _set_off(self, step: Step, hears: str) -> None:
        for effect in step.effects:
            self.effects.submit(effect)
        concerned = dict.fromkeys(found for noun in step.saves if (found := self.kinds.listener(noun)))
        concerned.pop(hears, None)
        if concerned:
            self.news(concerned)


class Door:
    def __init__(self, store: Store, *, wake: Wake, news: News, kinds: Kinds = KINDS) -> None:
        self.kinds, self._wake = kinds, wake
        self._committer = Committer(store, kinds, _NoEffects(), news)

    def take(self, snapshot: Snapshot, plan: Plan, beside: Sequence[Change] = (), *, hears: str = "") -> None:
        """Commit the plan, and wake what it wakes. Raises Conflict if somebody else wrote first: nothing of the step
        that lost is written, and the caller reads and decides again."""
        done = self._committer.commit(self.kinds.checked(snapshot, plan), beside, hears)
        if done.lost:
            raise Conflict(str(done.lost[0]))
        self.wake(done.wake)

    def wake(self, units: Iterable[str]) -> None:
        wanted = list(dict.fromkeys(units))
        if wanted:
            self._wake(wanted)


class _NoEffects:
    def submit(self, effect: Effect) -> None:
        raise Bug(f"{effect} is planned where nothing executes it: wake its unit instead")


def _rebased(put: Put, written: dict[Key, int]) -> Put:
    """`put` on top of what an earlier step of the same plan wrote."""
    version = written.get(put.key)
    if version is None:
        return put
    return Put(replace(put.record, version=version + 1), expect=version)

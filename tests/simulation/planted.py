"""Bugs planted on purpose, each a plausible slip in one part. A simulation that can't find them proves nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from chalicelib.backends.spi import Backend
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run
from chalicelib.engine.decisions import Decisions
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.planning.instance import decide_instance
from chalicelib.planning.plan import Create, Plan, Step
from chalicelib.planning.run import decide_run
from chalicelib.planning.snapshots import InstanceSnapshot, RunSnapshot
from chalicelib.store import keys, nouns
from chalicelib.usecases import agent
from tests.simulation.plane import Parts
from tests.simulation.story import play
from tests.simulation.world import Violation


def _no_lint(snapshot: Any, plan: Plan) -> list[str]:
    """The lint would find some of these before they do harm; here the history itself must show them."""
    return []


# 1. --- forgets that somebody else may still be buying --------------------------------------------------------------


def _impatient(snapshot: InstanceSnapshot) -> Plan:
    instance = snapshot.instance
    if instance.status is InstanceStatus.pending and instance.act_until is not None:
        snapshot = replace(snapshot, instance=instance.with_(act_until=snapshot.now))
    return decide_instance(snapshot)


class _Impatient(Executor):
    def _may_call(self, instance: Instance, effect: Create, backend: Backend) -> bool:
        return instance.status is InstanceStatus.pending


# 2. --- gives a place back when the job is asked to end, not when it has ended --------------------------------------


def _hasty(snapshot: RunSnapshot) -> Plan:
    plan = decide_run(snapshot)
    steps = []
    for step in plan.steps:
        saves = {nouns.key_of(noun): noun for noun in step.saves}
        for noun in step.saves:
            if isinstance(noun, Job) and noun.status is JobStatus.terminating and noun.assignment:
                key = keys.instance(noun.assignment.instance_id)
                place = saves.get(key) or snapshot.instances.get(noun.assignment.instance_id)
                if isinstance(place, Instance):
                    saves[key] = place.with_(claims=tuple(c for c in place.claims if c.job_id != noun.id))
        steps.append(replace(step, saves=tuple(saves.values())))
    return replace(plan, steps=tuple(steps))


# 3. --- keeps the last handle only, and asks nobody what else there is ----------------------------------------------


class _Forgetful(Executor):
    def _checkpoint(self, instance: Instance, handles: Iterable[Handle], backend: Backend) -> Instance | None:
        last = list(handles)[-1:]
        if not last:
            return instance
        current = nouns.find(self.store, Instance, keys.instance(instance.id))
        if current is None or current.status is InstanceStatus.terminated:
            return None
        saved = current.with_(handles=tuple(last))
        self.store.commit([nouns.put(saved)])
        return saved.with_(version=current.version + 1)


# 4. --- takes what an index doesn't show for what isn't there -------------------------------------------------------


class _Trusting(Loader):
    def _listed(self, fleet: Fleet, fresh: bool) -> dict[str, Instance]:
        return {i.id: i for r in self._all("gsi1", keys.instances_of(fleet.id)) for i in [self._parse(Instance, r)]}


# 5. --- applies a message that was applied already ------------------------------------------------------------------

_FOR_EVER = itertools.count(1_000_000)


def _credulous(plane: Any, instance_id: str, credential: str, body: bytes) -> dict[str, Any]:
    message = orjson.loads(body)
    message.update(seq=next(_FOR_EVER), boot="always the same")
    return agent.sync(plane, instance_id, credential, orjson.dumps(message))


# 6. --- relies on being woken ---------------------------------------------------------------------------------------


def _sleepy(snapshot: RunSnapshot) -> Plan:
    plan = decide_run(snapshot)
    return replace(plan, steps=tuple(replace(step, saves=_without_alarm(step)) for step in plan.steps), next_wake=None)


def _without_alarm(step: Step) -> tuple[Any, ...]:
    return tuple(noun.with_(due_at=None) if isinstance(noun, Run) else noun for noun in step.saves)


@dataclass(frozen=True)
class Planted:
    parts: Parts
    symptom: str  # what the violation says, as a pattern
    seeds: int = 60  # within so many it must be found


PLANTED: dict[str, Planted] = {
    "forgets act_until": Planted(
        Parts(decisions=Decisions(instance=_impatient, lint=_no_lint), executor=_Impatient), "bought twice"
    ),
    "releases a claim early": Planted(
        Parts(decisions=Decisions(run=_hasty, lint=_no_lint)), "without a claim there|holds a place|second time"
    ),
    "drops handles": Planted(Parts(executor=_Forgetful), "forgets its handles|called gone|something is left"),
    "trusts the index": Planted(Parts(loader=_Trusting), "may have|a pass failed", seeds=120),
    "applies replayed messages": Planted(Parts(sync=_credulous), "called lost|its task is|second time"),
    "relies on being woken": Planted(Parts(decisions=Decisions(run=_sleepy, lint=_no_lint)), "never end"),
}


def found_by(bug: Planted) -> tuple[int, str] | None:
    """The first seed that shows it, and what it says; None where none does."""
    for seed in range(bug.seeds):
        try:
            play(seed, bug.parts)
        except Violation as violation:
            return seed, str(violation)
    return None

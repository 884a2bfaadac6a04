"""Building a step: nouns move along their tables, and every move records an event.

Every status change goes through `Draft`, so that rule 1 of the machines ("a status changes only by `apply`") and the
rule of the log ("an event is never written apart from its change") are enforced in one place. A noun that moves twice
in a step is saved once, in its last state. Events of a step are a microsecond apart, to keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from chalicelib.domain.bundles import woken_by_end
from chalicelib.domain.events import Event, EventType, Target, Trade
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.noun import Noun
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason, job_outcome, run_outcome
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.tenants import User
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.job import GRACE, JOB
from chalicelib.machines.run import RUN
from chalicelib.machines.table import StateMachine, apply
from chalicelib.planning.kernel.plan import Effect, Plan, Step

N = TypeVar("N", bound=Noun)

_STAMPS = {"provisioning": "provisioned_at", "pulling": "pulling_at", "running": "running_at"}


def target(noun: Noun) -> Target:
    """The event target that stands for a noun."""
    return Target.unvalidated(type=noun.kind, id=noun.id, name=noun.name)  # type: ignore[attr-defined]


def _targets(nouns: Sequence[Noun]) -> tuple[Target, ...]:
    found = []
    for noun in nouns:
        found.append(target(noun))
        if also := noun.parent():
            kind, id, name = also
            found.append(Target.unvalidated(type=kind, id=id, name=name))
    return tuple(found)


def _within(nouns: Sequence[Noun], fields: Sequence[str]) -> str | None:
    """The id of the run (or of the fleet) that the first of the nouns that has one belongs to."""
    for noun, field in zip(nouns, fields, strict=True):
        if field:
            found: str | None = getattr(noun, field)
            return found
    return None


class Draft:
    """Collects the saves, events, effects and wakes of one step."""

    def __init__(self, now: Micros, actor: tuple[str, str] | None = None, token: str = "") -> None:
        """`actor`: the id and name of the user who requested this; None if the control plane decided. `token`: the name
        of the access token with which they did."""
        self.now, self.actor = now, actor
        self._actor: dict[str, Any] = {} if actor is None else {"actor_id": actor[0], "actor_name": actor[1]}
        if token:
            self._actor["actor_token"] = token
        self._saves: dict[tuple[type, str], Noun] = {}
        self._events: list[Event] = []
        self._effects: list[Effect] = []
        self._wake: dict[str, None] = {}

    @classmethod
    def of(cls, user: User, now: Micros) -> Draft:
        """What this user requested."""
        return cls(now, (user.id, user.name), user.by_token)

    def save(self, noun: Noun) -> None:
        self._saves[type(noun), getattr(noun, "id", "")] = noun  # a body has no id; a step has at most one

    def act(self, effect: Effect) -> None:
        self._effects.append(effect)

    def wake(self, *units: str) -> None:
        self._wake.update(dict.fromkeys(units))

    def record(self, type: EventType, *nouns: Noun, **data: Any) -> None:
        """Add an event about these nouns; its subject is the first of them."""
        self._record(type, nouns, data)

    def _record(self, type: EventType, nouns: Sequence[Noun], data: dict[str, Any]) -> None:
        first: Any = nouns[0]
        at = self.now + len(self._events)
        self._events.append(
            Event.unvalidated(
                id=derive(first.id, "event", first.version, at, type),
                project_id=first.project_id,
                at=at,
                type=type,
                targets=_targets(nouns),
                run_id=_within(nouns, [noun.in_run for noun in nouns]),
                fleet_id=_within(nouns, [noun.in_fleet for noun in nouns]),
                **self._actor,
                **data,
            )
        )

    def step(self) -> Step:
        return Step(tuple(self._saves.values()), tuple(self._events), tuple(self._effects), tuple(self._wake))

    @property
    def size(self) -> int:
        """How many records the commit writes."""
        return len(self._saves) + len(self._events)

    def plan(self) -> Plan:
        """The step as a plan; an empty plan if there is nothing to do."""
        return Plan() if self.empty else Plan((self.step(),))

    @property
    def empty(self) -> bool:
        return not self._saves and not self._effects

    # --- moves: the only callers of `apply` --------------------------------------------------------------------------

    def move(self, machine: StateMachine, noun: N, event: str, *, note: str = "", **changes: Any) -> N:
        """Move a noun of any kind that has no method of its own below."""
        old: Any = noun
        new = type(old.status)(apply(machine, old.status, event))
        moved = noun.with_(**{"status": new, "last_processed_at": self.now, **changes})
        self._moved(old, moved, note)
        return moved

    def move_job(self, job: Job, event: str, *beside: Noun, note: str = "", **changes: Any) -> Job:
        new = JobStatus(apply(JOB, job.status, event))
        stamp = "finished_at" if new in JOB.terminal else _STAMPS.get(new)
        stamps = {stamp: self.now} if stamp else {}
        moved = job.with_(**{"status": new, "last_processed_at": self.now, **stamps, **changes})
        self._moved(job, moved, note, _place_traded(job, moved), *beside)
        return moved

    def move_instance(self, instance: Instance, event: str, *, note: str = "", **changes: Any) -> Instance:
        new = InstanceStatus(apply(INSTANCE, instance.status, event))
        moved = instance.with_(**{"status": new, "last_processed_at": self.now, **changes})
        if moved.registry_login or moved.carriers:  # whatever comes after `pending`, it isn't requested again
            moved = moved.with_(registry_login="", carriers=None)
        if moved.gateway is not None and new in (InstanceStatus.terminating, InstanceStatus.terminated):
            self.wake(f"gateway/{moved.gateway.gateway_id}")
        gone = new is InstanceStatus.terminated
        self._moved(instance, moved, note, Trade.of("returned", instance.offer) if gone else None)
        return moved

    def move_run(self, run: Run, event: str, *, note: str = "", **changes: Any) -> Run:
        new = RunStatus(apply(RUN, run.status, event))
        moved = run.with_(**{"status": new, "last_processed_at": self.now, **changes})
        if new != run.status:
            self._moved(run, moved, note)
        return moved

    def _moved(self, old: Any, new: Any, note: str, trade: Trade | None = None, *beside: Noun) -> None:
        self.save(new)
        reason = getattr(new, "reason", None)
        event_fields = {
            "before": str(old.status),
            "after": str(new.status),
            "reason": None if reason is None else str(reason),
            "detail": note or ("" if new.message == old.message else new.message),
            "trade": trade,
        }
        self._record(EventType.status, (new, *beside), event_fields)

    # --- ends --------------------------------------------------------------------------------------------------------

    def end_job(
        self,
        job: Job,
        reason: JobReason,
        *,
        message: str = "",
        exit_status: int | None = None,
        grace: Micros | None = GRACE,
    ) -> Job:
        """Start terminating a live job. `grace` is how long its process may take to exit; None: no limit."""
        kill_at = self.now if reason is JobReason.aborted_by_user else None if grace is None else self.now + grace
        self.wake(f"run/{job.run_id}")
        return self.move_job(
            job,
            "end",
            reason=reason,
            message=message,
            exit_status=exit_status,
            stop_sent_at=self.now,
            kill_at=kill_at,
            due_at=None,
        )

    def finish_job(self, job: Job, instance: Instance | None) -> tuple[Job, Instance | None]:
        """Make a terminating job final and release its claim, in one commit. If its machine is another project's, this
        is a part of the history of that project's fleet, of which its costs are counted."""
        lender = [instance] if instance is not None and instance.project_id != job.project_id else []
        outcome = job_outcome(job.reason or JobReason.terminated_by_server)
        finished = self.move_job(job, outcome, *lender, due_at=None)
        freed = instance if instance is None else self.release(instance, job.id)
        self.wake(f"run/{job.run_id}", f"queue/{job.project_id}")
        if instance is not None and instance.project_id != job.project_id:
            self.wake(f"queue/{instance.project_id}")
        self.wake(*(f"volume/{each.id}" for each in (job.assignment.volumes if job.assignment else ())))
        return finished, freed

    def release(self, instance: Instance, job_id: str) -> Instance:
        """The instance without this job's claim; idle when it was the last."""
        claims = tuple(claim for claim in instance.claims if claim.job_id != job_id)
        if len(claims) == len(instance.claims):
            return instance
        self.wake(f"instance/{instance.id}")
        if claims or instance.status != InstanceStatus.busy:
            freed = instance.with_(claims=claims, last_processed_at=self.now)
            self.save(freed)
            return freed
        dues = [] if instance.idle_seconds is None else [self.now + instance.idle_seconds * SECOND]
        if instance.unreachable:
            dues.append(self.now)  # its agent may report again, and no job is placed there until a pass notices
        due_at = min([instance.due_at or self.now, *dues])
        return self.move_instance(instance, "freed", claims=(), idle_since=self.now, due_at=due_at)

    def end_instance(self, instance: Instance, reason: InstanceReason, message: str = "") -> Instance:
        """Start terminating an instance; wake the runs of its jobs, and those that end with it. `act_until` stays: a
        purchase may be in flight."""
        self.wake(
            *(f"instance/{each}" for each in woken_by_end(instance)),
            *(f"run/{claim.run_id}" for claim in instance.claims),
        )
        return self.move_instance(instance, "end", reason=reason, message=message, stop_attempts=0, due_at=self.now)

    def finish_run(self, run: Run) -> Run:
        return self.move_run(
            run,
            run_outcome(run.reason or RunReason.server_error),
            finished_at=self.now,
            resume_at=None,
            due_at=None,
        )


def _place_traded(old: Job, new: Job) -> Trade | None:
    """The place that a job takes or releases with this move."""
    if old.assignment is None:
        return None if new.assignment is None else Trade.of("taken", new.assignment.offer)
    returned = new.assignment is None or new.finished
    return Trade.of("returned", old.assignment.offer) if returned else None

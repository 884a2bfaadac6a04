"""A step in the making: nouns move along their tables, and every move leaves its line of history.

Whoever changes a status does it through `Draft`, so that rule 1 of the machines ("a status changes only by `apply`")
and the rule of the log ("an event is never written apart from its change") hold in one place. A noun that moves twice
in a step is saved once, as it is at the end. Events of one step lie a microsecond apart, so that they read in order.
"""

from __future__ import annotations

from typing import Any

from chalicelib.domain.events import Event, Target
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.noun import Noun
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason, job_outcome, run_outcome
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.machines.fleet import FLEET
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.job import JOB
from chalicelib.machines.run import RUN
from chalicelib.machines.table import apply
from chalicelib.planning.plan import Effect, Step

GRACE: Micros = 10 * SECOND  # between the polite signal and the kill, where the user names no `stop_duration`

_KINDS: dict[type[Noun], str] = {Run: "run", Job: "job", Instance: "instance", Fleet: "fleet"}
_STAMPS = {"provisioning": "provisioned_at", "pulling": "pulling_at", "running": "running_at"}


def target(noun: Noun) -> Target:
    """A noun as an event names it."""
    return Target(type=_KINDS[type(noun)], id=noun.id, name=noun.name)  # type: ignore[attr-defined]


class Draft:
    """Collects the saves, events, effects and wakes of one step."""

    def __init__(self, now: Micros) -> None:
        self.now = now
        self._saves: dict[tuple[type, str], Noun] = {}
        self._events: list[Event] = []
        self._effects: list[Effect] = []
        self._wake: dict[str, None] = {}

    def save(self, noun: Noun) -> None:
        self._saves[type(noun), noun.id] = noun  # type: ignore[attr-defined]

    def act(self, effect: Effect) -> None:
        self._effects.append(effect)

    def wake(self, *units: str) -> None:
        self._wake.update(dict.fromkeys(units))

    def tell(self, message: str, *about: Noun) -> None:
        """One line of history about these nouns; the first of them is who it happened to."""
        first: Any = about[0]
        at = self.now + len(self._events)
        run_id = next((n.id if isinstance(n, Run) else n.run_id for n in about if isinstance(n, Run | Job)), None)
        pool = (n.id if isinstance(n, Fleet) else n.fleet_id for n in about if isinstance(n, Fleet | Instance))
        self._events.append(
            Event(
                id=derive(first.id, "event", at, message),
                project_id=first.project_id,
                at=at,
                message=message,
                targets=tuple(target(noun) for noun in about),
                run_id=run_id,
                fleet_id=next(pool, None),
            )
        )

    def step(self) -> Step:
        return Step(tuple(self._saves.values()), tuple(self._events), tuple(self._effects), tuple(self._wake))

    @property
    def empty(self) -> bool:
        return not self._saves and not self._effects

    # --- moves: the only callers of `apply` --------------------------------------------------------------------------

    def move_job(self, job: Job, event: str, *beside: Noun, note: str = "", **changes: Any) -> Job:
        new = JobStatus(apply(JOB, job.status, event))
        stamp = "finished_at" if new in JOB.terminal else _STAMPS.get(new)
        stamps = {stamp: self.now} if stamp else {}
        moved = job.with_(**{"status": new, "last_processed_at": self.now, **stamps, **changes})
        self._moved(job, moved, note or _because(moved.reason if new in _ENDING else None, moved.message), *beside)
        return moved

    def move_instance(self, instance: Instance, event: str, *, note: str = "", **changes: Any) -> Instance:
        new = InstanceStatus(apply(INSTANCE, instance.status, event))
        moved = instance.with_(**{"status": new, "last_processed_at": self.now, **changes})
        self._moved(instance, moved, note or _because(moved.reason if new in _ENDING else None, moved.message))
        return moved

    def move_run(self, run: Run, event: str, *, note: str = "", **changes: Any) -> Run:
        new = RunStatus(apply(RUN, run.status, event))
        moved = run.with_(**{"status": new, "last_processed_at": self.now, **changes})
        if new != run.status:
            self._moved(run, moved, note or _because(moved.reason, moved.message))
        return moved

    def move_fleet(self, fleet: Fleet, event: str, **changes: Any) -> Fleet:
        new = FleetStatus(apply(FLEET, fleet.status, event))
        moved = fleet.with_(**{"status": new, "last_processed_at": self.now, **changes})
        self._moved(fleet, moved, moved.message)
        return moved

    def _moved(self, old: Any, new: Any, why: str, *beside: Noun) -> None:
        self.save(new)
        self.tell(f"{old.status.value} → {new.status.value}" + (f": {why}" if why else ""), new, *beside)

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
        """A live job begins to end. `grace` is how long its process may take to leave; None: as long as it likes."""
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
        """A terminating job becomes final and gives its place back, in one commit."""
        done = self.move_job(job, job_outcome(job.reason or JobReason.terminated_by_server), note="ended", due_at=None)
        freed = instance if instance is None else self.release(instance, job.id)
        self.wake(f"run/{job.run_id}", f"queue/{job.project_id}")
        return done, freed

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
        return self.move_instance(instance, "freed", claims=(), idle_since=self.now, due_at=self.now)

    def end_instance(self, instance: Instance, reason: InstanceReason, message: str = "") -> Instance:
        """An instance begins to end; its jobs' runs are told. `act_until` stays: a purchase may still be under way."""
        self.wake(f"instance/{instance.id}", *(f"run/{claim.run_id}" for claim in instance.claims))
        return self.move_instance(instance, "end", reason=reason, message=message, stop_attempts=0, due_at=self.now)

    def finish_run(self, run: Run) -> Run:
        return self.move_run(
            run,
            run_outcome(run.reason or RunReason.server_error),
            finished_at=self.now,
            resume_at=None,
            stop_at=None,
            due_at=None,
        )


_ENDING = {"terminating"}


def _because(reason: Any, message: str) -> str:
    return ", ".join(part for part in (reason.value.replace("_", " ") if reason else "", message) if part)

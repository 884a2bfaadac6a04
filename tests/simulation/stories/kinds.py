"""Jobs that end because nobody uses them, and runs that start by the clock: sessions, utilization, schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import JobReason
from chalicelib.usecases.runs import plans, runs
from tests.simulation.hosts import Work
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

UNUSED = Invariant("unused", "a job ends as unused only after its whole time without a session, or with an idle GPU")
NO_OVERLAP = Invariant("no overlap", "a run with a schedule never has two jobs at once")

INACTIVITY = 60  # seconds
IDE = "work-here"
TRAINING = "training"
NIGHTLY = "nightly"
_FOR_EVER = 1e7


class Kinds(Story):
    likely = 0.25

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._stopped = False

    def plan(self) -> None:
        rng, work = self.rng, self.scene.hosts.work
        project = self.scene.projects[0].name
        work[project, IDE] = Work(_FOR_EVER, session=rng.choice((0.0, 5.0, 200.0)))
        work[project, TRAINING] = Work(_FOR_EVER, gpu=rng.choice((0, 5, 90)))
        work[project, NIGHTLY] = Work(rng.uniform(1, 90), rng.choice((0, 0, 1)))
        editor = rng.choice(({}, {"ide": "vscode"}, {"ide": "vscode", "version": "1.99.0@abc"}))
        used = {"type": "dev-environment", "init": ["setup"], "inactivity_duration": INACTIVITY, **editor}
        policy = {"min_gpu_utilization": 20, "time_window": "5m"}
        trained = {"commands": ["prepare", "train"], "utilization_policy": policy, "resources": {"gpu": "L4:1"}}
        nightly = {"commands": ["work"], "schedule": {"cron": ["*/2 * * * *", "0 3 * * *"]}, "max_duration": 600}
        for name, fields in ((IDE, used), (TRAINING, trained), (NIGHTLY, nightly)):
            if rng.random() < 0.7:
                raw = {"type": "task", "max_duration": 3600, **fields}
                self.sometime(lambda name=name, raw=raw: self._submit(name, raw), 0, FAULTY_FOR * 0.5)  # type: ignore[misc]

    def _submit(self, name: str, configuration: dict[str, Any]) -> None:
        plane, user, project = self.site.plane, self.scene.user, self.scene.projects[0]
        raw = {"run_name": name, "configuration": configuration}
        if self.scene.ask(lambda: plans.apply_plan(plane, user, project, raw, None)):
            self.world.note(f"{name} submitted")

    def calm(self) -> None:
        """A schedule goes on until somebody stops it: after a few starts."""
        self.world.after(self.rng.uniform(0, 600), self._stop)

    def _stop(self) -> None:
        if self.watch_run(NIGHTLY):
            runs.stop(self.site.plane, self.scene.user, self.scene.projects[0], [NIGHTLY], abort=False)

    def watch_run(self, name: str) -> bool:
        return any(run.name == name and not run.finished for run in self.watch.runs.values())

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        for old, job in commit.of(Job):
            if old is not None and old.reason is None and job.reason is not None:
                self._really_unused(job)
            if old is None and job.run_name == NIGHTLY:
                self._alone(job)

    def _really_unused(self, job: Job) -> None:
        task = self.scene.hosts.tasks.get(job.id)
        if job.reason is JobReason.inactivity_duration_exceeded:
            since = None if task is None else max(task.running_at or 0, task.idle_since or 0)
            if task is None or task.connections or self.world.time < (since or 0) + INACTIVITY * SECOND:
                raise UNUSED.broken(f"{job.name} ended for want of a session, and its task is {task}")
        if job.reason is JobReason.terminated_due_to_utilization_policy:
            work = self.scene.hosts.work[self.scene.projects[0].name, TRAINING]
            if work.gpu is None or work.gpu >= 20:
                raise UNUSED.broken(f"{job.name} ended, and its GPU is busy to {work.gpu} %")

    def _alone(self, job: Job) -> None:
        others = [each for each in self.watch.jobs.values() if each.run_id == job.run_id and each.id != job.id]
        if any(not other.finished for other in others):
            raise NO_OVERLAP.broken(f"{job.name} is submitted, and another job of its run hasn't ended")

    def unfinished(self) -> Iterator[Violation]:
        return iter(())  # that every run ends is said of all of them

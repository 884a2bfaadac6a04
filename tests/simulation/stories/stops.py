"""Stops and aborts, at any moment."""

from __future__ import annotations

from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.usecases.runs import runs
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant

ENDED_BY_USER = Invariant("ended as asked", "a job is called ended by its user only where its user asked for that")
STOPPED_STAYS = Invariant("stopped stays", "a run that its user stopped is not submitted again")

_BY_USER = (JobReason.terminated_by_user, JobReason.aborted_by_user)


class Stops(Story):
    likely = 0.6

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._stopped: set[str] = set()

    def plan(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.sometime(self._stop, 1, FAULTY_FOR)

    def _stop(self) -> None:
        live = [run_id for run_id in self.scene.submitted if not self.watch.runs[run_id].finished]
        if not live:
            return
        run_id, abort = self.rng.choice(live), self.rng.random() < 0.4
        spec = self.scene.submitted[run_id]
        if self.scene.ask(lambda: runs.stop(self.site.plane, self.scene.user, spec.project, [spec.name], abort=abort)):
            self.world.note("aborted" if abort else "stopped")
            self._stopped.add(run_id)

    def committed(self, commit: Commit) -> None:
        for old, job in commit.of(Job):
            if old is None and job.submission_num and job.run_id in self._stopped:
                raise STOPPED_STAYS.broken(f"{job.name} was stopped and is submitted again")
            by_user = job.status in (JobStatus.terminated, JobStatus.aborted) and job.reason in _BY_USER
            run = self.watch.runs.get(job.run_id)
            if by_user and (run is None or run.reason is None or not run.reason.value.endswith("_by_user")):
                raise ENDED_BY_USER.broken(f"job {job.name} is {job.status} by a user who never asked for it")

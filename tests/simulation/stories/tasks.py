"""Tasks: submitted, placed, run, retried, and ended as they really ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import RunStatus
from chalicelib.usecases.runs import plans
from tests.simulation.hosts import Work
from tests.simulation.stories import Story, Submitted
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

TRUE_ENDS = Invariant("true ends", "a job is called done, failed or lost only where that is what happened to its task")
LOGS_COMPLETE = Invariant(
    "logs whole", "a job that ended by itself has its whole log here, unless its host was lost first"
)
RUNS_END = Invariant("runs end", "every run comes to its end")
RUNS_STAY = Invariant("runs kept", "a run that was accepted is there, and ends as its jobs did")
RETRIED_BY_RULE = Invariant("retried as asked", "a job is submitted again only where its run asks for that")


_LOGS = (0, 60, 60, 3000, 3000, 3000, 3000, 900_000)  # bytes; the last is more than one message takes


class Tasks(Story):
    def plan(self) -> None:
        for number in range(self.rng.randint(3, 8)):
            self.sometime(lambda name=f"run-{number}": self._submit(name), 0, FAULTY_FOR * 0.75)  # type: ignore[misc]

    def _submit(self, name: str) -> None:
        rng, plane, scene = self.rng, self.site.plane, self.scene
        project = rng.choice(scene.projects)
        work = Work(rng.uniform(0.5, 60), rng.choice((0, 0, 0, 0, 1, 2)), rng.choice(_LOGS), rng.random() < 0.3)
        raw = {"run_name": name, "configuration": self._configuration()}
        view = plans.PlanView(beyond_fleets=rng.random() < 0.3)
        scene.hosts.work[project.name, name] = work

        def go() -> None:
            plans.get_plan(plane, scene.user, project, raw, view)
            row = plans.apply_plan(plane, scene.user, project, raw, None)
            scene.submitted[row.run.id] = Submitted(name, project, bool(raw["configuration"].get("retry")))  # type: ignore[attr-defined]

        scene.ask(go)

    def _configuration(self) -> dict[str, Any]:
        rng = self.rng
        chosen: dict[str, Any] = {
            "type": "task",
            "commands": ["work"],
            "resources": {
                "cpu": rng.choice(("1..", "1..", "1..", "2..4", "4..", "16..")),
                "memory": rng.choice(("1GB..", "1GB..", "4GB..16GB")),
                "gpu": rng.choice((*("0..",) * 10, "L4:1", "16GB")),
                "disk": None,
            },
            "max_price": rng.choice((*(None,) * 9, 0.3)),
            "regions": rng.choice((*(None,) * 6, ["sim-east"], ["sim-north", "sim-west"])),
            "fleets": rng.choice((*(None,) * 8, ["cloud"], ["local"])),
            "priority": rng.choice((0, 0, 50)),
            "spot_policy": "auto",
            "retry": rng.choice(
                (None, True, {"on_events": ["no-capacity", "interruption", "error"], "duration": 1800})
            ),
            "max_duration": rng.choice((None, 30)),
            "idle_duration": rng.choice((None, 10)),
            "creation_policy": rng.choice((*(None,) * 7, "reuse")),
        }
        return {name: value for name, value in chosen.items() if value is not None}

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        for old, job in commit.of(Job):
            if job.finished and (old is None or not old.finished):
                self._true_end(job)

    def _true_end(self, job: Job) -> None:
        task = self.scene.hosts.tasks.get(job.id)
        if job.status is JobStatus.done or job.reason is JobReason.container_exited_with_error:
            if task is None or task.state != "exited" or task.exit_status != job.exit_status:
                raise TRUE_ENDS.broken(
                    f"job {job.name} ended {job.status} with {job.exit_status}, but its task is {task}"
                )
            stored = self.site.plane.logs.end(job.project_id, job.id)
            connected = job.disconnected_at is None and not task.lost and not self.scene.hosts.hosts[task.host].dead
            if connected and stored != len(task.log):
                raise LOGS_COMPLETE.broken(f"job {job.name} ended with {stored} of {len(task.log)} bytes of its log")
        if job.reason is JobReason.executor_error and (task is None or not task.lost):
            raise TRUE_ENDS.broken(f"job {job.name} is called lost ({job.message}), but its task is {task}")

    def unfinished(self) -> Iterator[Violation]:
        for run in self.watch.runs.values():
            if not run.finished:
                jobs = [f"{job.name} {job.status} {job.message!r}" for job in self._jobs(run.id) if not job.finished]
                yield RUNS_END.broken(f"{run.name} is {run.status} ({run.message!r}), its jobs {jobs}")

    def verify_at_end(self) -> None:
        for run_id, spec in self.scene.submitted.items():
            run, jobs = self.watch.runs.get(run_id), self._jobs(run_id)
            if run is None or not jobs:
                raise RUNS_STAY.broken(f"run {spec.name} was accepted and is lost")
            if any(not job.finished for job in jobs):
                raise RUNS_STAY.broken(f"run {spec.name} ended before its jobs did")
            if run.status is RunStatus.done and not any(job.status is JobStatus.done for job in jobs):
                raise RUNS_STAY.broken(f"run {spec.name} is done, but none of its jobs is")
            if not spec.retried and len(jobs) > 1:
                raise RETRIED_BY_RULE.broken(f"run {spec.name} asks for no retry and was submitted {len(jobs)} times")

    def _jobs(self, run_id: str) -> list[Job]:
        return [job for job in self.watch.jobs.values() if job.run_id == run_id]

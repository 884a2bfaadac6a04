"""Services: traffic that rises and falls, doors that crash, replicas that die, and new versions, some of them bad.

The door here is a client of the plane like any other: it sees what is committed, reports what it counts, lets draining
replicas go when its requests are over, and forgets everything when it dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import Run
from chalicelib.domain.services import BUCKET, SERVER, Bucket, Traffic
from chalicelib.planning.runs.rollout import DRAIN
from chalicelib.usecases.runs import plans, runs
from chalicelib.usecases.services.traffic import report
from tests.simulation.hosts import Work
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation

COUNTS_HOLD = Invariant("counts kept", "a service never gets more replicas than it should have, and one more")
BOUNDS_HOLD = Invariant("bounds kept", "as many replicas are asked for as one of its configurations allows")
SERVED_THROUGHOUT = Invariant("served throughout", "nobody is taken from requests while fewer serve than are asked for")
DRAINED = Invariant("drained", "a replica that serves is stopped only when its door has let it go, or its time is up")
NONE_LEFT = Invariant("none left", "when a service ends, so do all its replicas")
WOKEN = Invariant("woken", "a service without replicas gets one when a request waits")
SETTLES = Invariant("settles", "in the end a service has the replicas that it should have, of its last version")

NAME = "chat"
EVERY = 10.0  # seconds between two reports
FAST = {"target": 2, "window": "30s", "scale_up_delay": "5s", "scale_down_delay": "20s"}
SOON: Micros = 2 * MINUTE  # for a woken service to have a job
LAST = 90 * MINUTE  # for a service to settle in
FROM_ZERO = ((0, 3), (0, 1))  # the fewest and the most replicas
ANY = (*FROM_ZERO, (1, 3), (1, 1), (2, 2))
_AT_WORK = Work(seconds=1e7, log=0)
_BAD = Work(seconds=2, log=0, failures=10_000)


class Door:
    """Counts what comes, in memory."""

    def __init__(self, story: Services) -> None:
        self.story, self.world = story, story.world
        self.buckets: list[Bucket] = []
        self.load = 0.0  # requests a second
        self.busy_until: dict[str, Micros] = {}  # by job: until when
        self.waiting_since: Micros | None = None  # when a report last got through that somebody waits

    def die(self) -> None:
        self.buckets, self.busy_until = [], {}

    def report(self) -> None:
        story, now = self.story, self.world.time
        run = story.run
        if run is None or run.finished:
            return
        serving = story.serving(run.id)
        requests = int(self.load * EVERY)
        if requests and serving:
            for job in serving:
                self.busy_until[job.id] = now + round(story.rng.uniform(1, 20) * SECOND)
        held = int(bool(requests) and not serving)
        self.buckets = [*self.buckets[-30:], Bucket(at=now // BUCKET * BUCKET, requests=requests, busy=self.load)]
        live = story.live(run.id)
        busy = {job.id for job in live if self.busy_until.get(job.id, 0) > now}
        draining = [job.id for job in live if job.draining_at is not None and job.id not in busy]
        traffic = Traffic(
            run_id=run.id,
            door=SERVER,
            at=now,
            quiet=not requests and not busy,
            held=held,
            buckets=tuple(self.buckets),
            let_go=tuple(draining),
        )
        if story.scene.ask(lambda: report(story.site.plane, SERVER, [traffic])) and held:
            self.waiting_since = self.waiting_since or now
        if not held:
            self.waiting_since = None


class Services(Story):
    likely = 0.1

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.door = Door(self)
        self.run_id = ""
        self._limits: list[tuple[int, int]] = []
        self._calm_since: Micros | None = None
        self._settled = self._bad = False
        self._version = 0
        self._shapes = self.rng.choice((ANY, ANY, FROM_ZERO))

    # --- what happens ------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        self.scene.hosts.work[self.project.name, NAME] = _AT_WORK
        self.sometime(self._apply, 0, 30)
        for _ in range(self.rng.randint(1, 4)):
            self.sometime(self._apply, 30, FAULTY_FOR)
        for _ in range(self.rng.randint(2, 8)):
            self.sometime(self._upgrade_pages, 0, FAULTY_FOR)
        for _ in range(self.rng.randint(0, 3)):
            self.sometime(self._lose_one, 30, FAULTY_FOR)
        for _ in range(self.rng.randint(0, 2)):
            self.sometime(self._door_dies, 20, FAULTY_FOR)
        self.world.after(EVERY, self._report)

    @property
    def project(self) -> Any:
        return self.scene.projects[0]

    @property
    def run(self) -> Run | None:
        return self.watch.runs.get(self.run_id)

    def _report(self) -> None:
        if not self.door_is_down():
            self.door.report()
        if self.run is None or not self.run.finished:
            self.world.after(EVERY, self._report)
        if self._calm_since is not None:
            self._end_if_settled()

    def door_is_down(self) -> bool:
        return self.world.time < getattr(self, "_down_until", 0)

    def _door_dies(self) -> None:
        self.world.note("door died")
        self.door.die()
        self._down_until = self.world.time + round(self.rng.uniform(1, 60) * SECOND)

    def _upgrade_pages(self) -> None:
        self.door.load = self.rng.choice((0, 0, 0.3, 1, 3, 9))

    def _lose_one(self) -> None:
        """The application of a replica exits by itself."""
        alive = [job for job in self.live(self.run_id) if job.status is JobStatus.running]
        if alive:
            job = self.rng.choice(alive)
            task = self.scene.hosts.tasks.get(job.id)
            host = None if task is None else self.scene.hosts.hosts.get(task.host)
            if task is not None and host is not None and not host.dead:
                self.world.note("replica died")
                host._exit(task, 1, "container_exited_with_error")

    def _apply(self, *, good: bool = False) -> None:
        bad = not good and self._version > 0 and self.rng.random() < 0.25
        if self.rng.random() < 0.7 or good:
            self._version += 1
        shape = self.rng.choice(self._shapes)
        config: dict[str, Any] = {
            "type": "service",
            "gateway": False,
            "port": 8000,
            "commands": ["serve"],
            "env": {"V": str(self._version)},
            "resources": {"cpu": "1..", "memory": "1GB..", "disk": None},
            "replicas": shape[0] if shape[0] == shape[1] else f"{shape[0]}..{shape[1]}",
            "spot_policy": "auto",
            "retry": {"on_events": ["no-capacity", "interruption", "error"], "duration": "2h"},
        }
        if shape[0] != shape[1]:
            config["scaling"] = {**FAST, "metric": self.rng.choice(("rps", "queue"))}
        raw = {"run_name": NAME, "configuration": config}

        def go() -> None:
            row = plans.apply_plan(self.site.plane, self.scene.user, self.project, raw, None)
            self.run_id = row.run.id
            self.scene.hosts.work[self.project.name, NAME] = _BAD if bad else _AT_WORK
            self._bad = bad
            self.world.note("bad version" if bad else "version")

        self._limits.append(shape)
        self.scene.ask(go)

    def calm(self) -> None:
        self._calm_since = self.world.time
        self.door.load = 0.3
        self.door.waiting_since = None
        self.scene.hosts.work[self.project.name, NAME] = _AT_WORK
        if self.run is not None and not self.run.finished and (self._bad or self.rng.random() < 0.5):
            self._apply(good=True)

    def _end_if_settled(self) -> None:
        """Once it has what it should have, its user stops it."""
        run = self.run
        if run is None or run.finished or self._settled or self._calm_since is None:
            return
        wanted = sum(scale.desired for scale in run.scales)
        serving = self.serving(run.id)
        newest = all(job.deployment_num == run.deployment_num for job in serving)
        if len(serving) == wanted == len(self.live(run.id)) and wanted and newest:
            self.world.note("service settled")
        elif self.world.time < self._calm_since + LAST:
            return
        elif self._had_room(run):
            jobs = [f"{job.name} {job.status} {job.deployment_num}" for job in self.live(run.id)]
            raise SETTLES.broken(
                f"{wanted} replicas are wanted at deployment {run.deployment_num}, and there are {jobs}"
            )
        self._settled = True
        runs.stop(self.site.plane, self.scene.user, self.project, [NAME], abort=False)

    def _had_room(self, run: Run) -> bool:
        """Was there a machine for each of its replicas?"""
        none = JobReason.failed_to_start_due_to_no_capacity
        jobs = (job for job in self.watch.jobs.values() if job.run_id == run.id)
        return not any(job.reason is none or job.status is JobStatus.submitted for job in jobs)

    # --- what there is -----------------------------------------------------------------------------------------------

    def live(self, run_id: str) -> list[Job]:
        return [job for job in self.watch.jobs.values() if job.run_id == run_id and not job.finished]

    def serving(self, run_id: str) -> list[Job]:
        return [job for job in self.live(run_id) if _serves(job)]

    # --- what must hold ----------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> None:
        for _, run in commit.of(Run):
            if run.id == self.run_id:
                self._bounded(run)
                if run.finished and (left := self.live(run.id)):
                    raise NONE_LEFT.broken(f"{run.name} is {run.status}, and {left[0].name} is {left[0].status}")
        changed = [(old, job) for old, job in commit.of(Job) if job.run_id == self.run_id]
        run = self.run
        if run is None or not changed:
            return
        if any(old is None for old, _ in changed):
            self._counted(run)
        for old, job in changed:
            if old is not None and _serves(old) and not _serves(job):
                self._left_rightly(run, old, job)
            if old is not None and old.draining_at is not None:
                self._drained(old, job)

    def _bounded(self, run: Run) -> None:
        most = max(high for _, high in self._limits)
        if any(scale.desired > most for scale in run.scales):
            raise BOUNDS_HOLD.broken(f"{run.name} should have {run.scales[0].desired} replicas, of at most {most}")

    def _counted(self, run: Run) -> None:
        stay = Counter(job.replica_group for job in self.live(run.id) if _stays(job))
        for scale in run.scales:
            if stay[scale.group] > scale.desired + 1:
                raise COUNTS_HOLD.broken(f"{stay[scale.group]} replicas, and {scale.desired} are asked for")

    def _left_rightly(self, run: Run, old: Job, job: Job) -> None:
        by_plan = job.draining_at is not None or job.reason is JobReason.scaled_down
        if not by_plan or run.reason is not None:
            return
        desired, since = sum(scale.desired for scale in run.scales), job.draining_at or self.world.time
        jobs = [each for each in self.watch.jobs.values() if each.run_id == run.id]
        serving = sum(_serves(each) or _served(each, since) for each in jobs)
        if serving < desired:
            raise SERVED_THROUGHOUT.broken(f"{job.name} leaves, {serving} serve of {desired}")

    def _drained(self, old: Job, job: Job) -> None:
        if job.reason is JobReason.scaled_down and old.reason is None and old.draining_at is not None:
            busy = self.door.busy_until.get(job.id, 0) > self.world.time
            if busy and self.world.time < old.draining_at + DRAIN and not self.world.happened.get("door died"):
                raise DRAINED.broken(f"{job.name} is stopped while its door has requests for it")

    def unfinished(self) -> Iterator[Violation]:
        """Asked after every step of the calm, so this is where it is seen that a waiting request is heard."""
        run, since = self.run, self.door.waiting_since
        asleep = run is not None and run.reason is None and not run.retries and not self.live(run.id)
        if asleep and since is not None and self.world.time > since + SOON:
            raise WOKEN.broken(f"{NAME} has no replica, and somebody has waited since {since}")
        if run is not None and not run.finished:
            yield SETTLES.broken(f"{NAME} is {run.status} ({run.message!r}) and doesn't end")


def _serves(job: Job) -> bool:
    return job.status is JobStatus.running and job.ready_at is not None and job.draining_at is None


def _served(job: Job, at: Micros) -> bool:
    """It did when that was decided, and has died since."""
    return (
        job.ready_at is not None and job.draining_at is None and job.reason is not None and job.last_processed_at > at
    )


def _stays(job: Job) -> bool:
    return not job.finished and job.status is not JobStatus.terminating and job.draining_at is None

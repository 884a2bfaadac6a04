"""A cloud that sells containers in place of machines, too: cheaper ones, which most jobs get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.backends.simulated.catalog import CONTAINERS
from chalicelib.domain import keys
from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import JobReason
from chalicelib.store import nouns
from chalicelib.usecases.people.secrets import set_secret
from chalicelib.usecases.runs import plans
from tests.simulation.hosts import Work
from tests.simulation.stories import STORIES, Scene, Story, Submitted
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation
from tests.world import nouns as b

ONE_JOB = Invariant("one job", "a container is created for one job, and no other ever gets it")
ENDS_WITH_ITS_JOB = Invariant("ends with its job", "a container that has lost its job goes on to nothing but its end")
SAME_REQUEST = Invariant("same request", "a container is requested again as it was requested first")
SECRETS_SEALED = Invariant("secrets sealed", "no record has a registry's password in clear, and none keeps it for long")
BAD_IMAGES_END = Invariant("bad images end", "a job ends for its image only where that can't be pulled, or it exits")

FLEET = "pods"
PASSWORD = "in-clear"
BAD = "example.com/bad"


class Containers(Story):
    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._job_of: dict[str, str] = {}  # by instance
        self._requested: dict[str, Any] = {}  # by token
        self._exited: set[str] = set()

    def prepare(self) -> None:
        cloud, site = self.site.cloud, self.site
        cloud.facts = cloud.facts.with_(containers=True)
        site.script.bad_images = [BAD]
        self.world.after(1.0, lambda: site.catalog.refresh(site.accounts.accounts()[0].key))
        self._found_fleet()
        self._rotate()

    def _found_fleet(self) -> None:
        at, project = self.world.now(), self.scene.projects[0]
        fleet = b.fleet(FLEET, created_at=at, last_processed_at=at).with_(project_id=project.id)
        body = FleetBody(fleet_id=fleet.id, spec=b.fleet_spec(name=FLEET, nodes="0..4").model_dump_json())
        pointer = nouns.pointer(keys.fleet_name(project.id, FLEET), fleet.id)
        self.site.store.commit([nouns.put(fleet), nouns.put(body), pointer])

    def plan(self) -> None:
        site = self.site
        before = site.backend.creating

        def creating(request: Any) -> None:
            before(request)
            self._creating(request)

        site.backend.creating = creating
        for number in range(self.rng.randint(3, 6)):
            self.sometime(lambda name=f"contained-{number}": self._submit(name), 0, FAULTY_FOR * 0.75)  # type: ignore[misc]
        for _ in range(self.rng.choice((0, 1, 2))):
            self.sometime(self._exit, 10, FAULTY_FOR)
        for _ in range(30):
            self.sometime(self._rotate, 0, FAULTY_FOR)

    def _rotate(self) -> None:
        site, number = self.site, self.rng.randint(0, 10**6)
        project, user = self.scene.projects[0], self.scene.user
        self.scene.ask(lambda: set_secret(site.plane, project, user, "registry", f"{PASSWORD}-{number}"))

    def _submit(self, name: str) -> None:
        rng, plane, scene = self.rng, self.site.plane, self.scene
        project, retry = scene.projects[0], rng.choice((None, True))
        login = {"username": "me", "password": "${{ secrets.registry }}"}
        chosen = {
            "type": "task",
            "commands": ["work"],
            "image": rng.choice((None, BAD, "example.com/it", "example.com/it")),
            "registry_auth": rng.choice((None, login, login)),
            "resources": {"cpu": "1..", "memory": "1GB..", "shm_size": rng.choice((None, "1GB"))},
            "privileged": rng.choice((None, None, None, True)),
            "spot_policy": "auto",
            "fleets": [FLEET],
            "retry": retry,
        }
        raw = {"run_name": name, "configuration": {key: value for key, value in chosen.items() if value is not None}}
        if "image" not in raw["configuration"]:
            raw["configuration"].pop("registry_auth", None)  # type: ignore[attr-defined]
        scene.hosts.work[project.name, name] = Work(rng.uniform(0.5, 60), rng.choice((0, 0, 1)), 3000)

        def go() -> None:
            row = plans.apply_plan(plane, scene.user, project, raw, None)
            scene.submitted[row.run.id] = Submitted(name, project, bool(retry))

        scene.ask(go)

    def _exit(self) -> None:
        there = [body for body in self.site.cloud.machines() if body.get("container") and not body.get("exited")]
        if there:
            self.world.note("container exited")
            instance_id = dict(self.rng.choice(there)["tags"])["dstack-instance"]
            self._exited.add(instance_id)
            self.site.cloud.exit(instance_id, "it ran out of memory")

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _creating(self, request: Any) -> None:
        if request.container is None:
            return
        first = self._requested.setdefault(request.token, request.container)
        if first != request.container or (first.login and first.login.password != request.container.login.password):
            raise SAME_REQUEST.broken(f"{request.name} is requested as another container than at first")

    def committed(self, commit: Commit) -> None:
        for _, instance in commit.of(Instance):
            if instance.offer.is_container:
                self._one_job(instance)
            if PASSWORD in instance.registry_login:
                raise SECRETS_SEALED.broken(f"instance {instance.name} has {instance.registry_login}")
            if instance.registry_login and instance.status is not InstanceStatus.pending:
                raise SECRETS_SEALED.broken(f"instance {instance.name} is {instance.status} and keeps its login")
        for _, job in commit.of(Job):
            if job.reason is JobReason.creating_container_error and job.finished:
                self._bad_image(job)

    def _one_job(self, instance: Instance) -> None:
        claimed = [claim.job_id for claim in instance.claims]
        if claimed and claimed != [self._job_of.setdefault(instance.id, claimed[0])]:
            raise ONE_JOB.broken(f"{instance.name} was created for {self._job_of[instance.id]} and has {claimed}")

    def _bad_image(self, job: Job) -> None:
        exited = job.assignment is not None and job.assignment.instance_id in self._exited
        if "can't be pulled" not in job.message and not exited:
            raise BAD_IMAGES_END.broken(f"{job.name} ended for its image: {job.message}")

    def unfinished(self) -> Iterator[Violation]:
        for instance in self.watch.instances.values():
            going = instance.status not in (InstanceStatus.terminating, InstanceStatus.terminated)
            if instance.offer.is_container and going and not instance.claims:
                yield Violation(ENDS_WITH_ITS_JOB, f"{instance.name} is {instance.status}, and its job has ended")

    def verify_at_end(self) -> None:
        containers = [each for each in self.watch.instances.values() if each.offer.region == CONTAINERS]
        self.world.note(f"{len(containers)} containers")


STORIES_WITH_CONTAINERS: tuple[type[Story], ...] = (Containers, *STORIES)

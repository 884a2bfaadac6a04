"""Volumes of a cloud: created, mounted by runs that need them one after the other, deleted at the end; on machines that
vanish, beside hosts that can't unmount at once, with a cloud that lies about attaching and detaching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.jobs import Job
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.runs import RunBody
from chalicelib.domain.volumes import AttachmentState, Volume, VolumeStatus
from chalicelib.machines.volume import TO_CREATE
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.kernel.requests import delete_volume
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.usecases.machines import fleets
from chalicelib.usecases.runs import runs
from tests.simulation.hosts import Task, Work
from tests.simulation.stories import Scene, Story
from tests.simulation.watch import Commit
from tests.simulation.world import FAULTY_FOR, Invariant, Violation
from tests.world import nouns as b

ONE_PLACE = Invariant("one place", "a volume is attached to one machine at a time, unless it may be at several")
FREED_WITH_PROOF = Invariant("freed with proof", "what is free in the records is attached to nothing at the cloud")
DISKS_FIRST = Invariant("disks first", "a task starts only where its volumes are attached")
USED_DISKS_STAY = Invariant("used disks stay", "no disk is detached while a task of a living machine uses it")
FORMATTED_ONCE = Invariant("formatted once", "a volume that was mounted once may never be formatted again")
DISKS_COME_BACK = Invariant("disks come back", "no volume is held for a job that has ended")
VOLUMES_END = Invariant("volumes end", "a deleted volume is gone, in the records and at the cloud")

FLEET = "disks"
REGIONS = ("sim-east", "sim-north")  # in the second, several machines may read one volume


class Volumes(Story):
    likely = 0.25
    fleet: ClassVar[dict[str, Any]] = {"name": FLEET, "nodes": "0..3"}
    counts: tuple[int, ...] = (1, 2)  # of volumes
    regions: tuple[str, ...] = REGIONS

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._names: list[str] = []

    def prepare(self) -> None:
        at, project = self.world.now(), self.scene.projects[0]
        fleet = b.fleet(FLEET, created_at=at, last_processed_at=at).with_(project_id=project.id)
        spec = b.fleet_spec(**self.fleet, idle_duration=self.rng.choice((0, 60)))
        pointer = nouns.pointer(keys.fleet_name(project.id, FLEET), fleet.id)
        body = FleetBody(fleet_id=fleet.id, spec=spec.model_dump_json())
        self.site.store.commit([nouns.put(fleet), nouns.put(body), pointer])
        for number in range(self.rng.choice(self.counts)):
            region = self.rng.choice(self.regions)
            volume = new_volume(self.scene, f"disk-{number}", region, read_only=region != REGIONS[0])
            create(self.scene, volume)
            self._names.append(volume.name)
        self.site.backend.detaching = self._detaching
        self.scene.hosts.mounting = self._mounting

    def plan(self) -> None:
        self.site.script.attach = round(self.rng.choice((0, 0, 10, 40)) * 1_000_000)
        self.site.script.detach = round(self.rng.choice((0, 0, 10, 40)) * 1_000_000)
        for number in range(self.rng.choice((2, 3, 4, 5))):
            self.sometime(lambda name=f"disk-user-{number}": self._submit(name), 0, FAULTY_FOR * 0.6)  # type: ignore[misc]
        if self.rng.random() < 0.3:
            self.sometime(self._lose_machine, 20, FAULTY_FOR)

    def _submit(self, name: str) -> None:
        rng, project, at = self.rng, self.scene.projects[0], self.world.now()
        mounted = self._mounted()
        fields: dict[str, Any] = {"retry": True} if rng.random() < 0.5 else {}
        spec = b.run_spec(run_name=name, fleets=[FLEET], **mounted, **fields)
        specs = job_specs(spec, images=b.Images())
        texts = tuple(each.model_dump_json() for each in specs)
        self.scene.hosts.work[project.name, name] = Work(rng.uniform(0.5, 60), rng.choice((0, 0, 0, 1)), 60, False)
        run = b.run(name, project_id=project.id, submitted_at=at, last_processed_at=at, due_at=at)
        run = run.with_(user_id=self.scene.user.id)
        body = RunBody(run_id=run.id, run_spec=spec.model_dump_json(), job_specs=texts)
        pointer = nouns.pointer(keys.run_name(project.id, name), run.id)
        jobs = [b.job(run, node=each.job_num, due_at=None if each.job_num else at) for each in specs]
        self.site.store.commit([nouns.put(run), nouns.put(body), pointer, *map(nouns.put, jobs)])
        if rng.random() < 0.3:
            self.sometime(lambda: self._stop(name), 0, 60)

    def _mounted(self) -> dict[str, Any]:
        names = self.rng.sample(self._names, self.rng.choice((1, len(self._names))))
        if len(names) > 1 and self.rng.random() < 0.5:
            return {"volumes": [{"name": names, "path": "/any"}]}
        return {"volumes": [{"name": each, "path": f"/{each}"} for each in names]}

    def _stop(self, name: str) -> None:
        plane, abort = self.site.plane, self.rng.random() < 0.5
        self.scene.ask(lambda: runs.stop(plane, self.scene.user, self.scene.projects[0], [name], abort=abort))

    def _lose_machine(self) -> None:
        machines = [each for each in self._instances() if each.handles and each.status is InstanceStatus.busy]
        for handle in self.rng.choice(machines).handles if machines else ():
            self.world.note("machine with a disk lost")
            self.site.cloud.lose(handle.id)

    def calm(self) -> None:
        self.site.script.attach = self.site.script.detach = 0

    def wind_up(self) -> None:
        plane, project = self.site.plane, self.scene.projects[0]
        for volume in self._volumes():
            draft = Draft(self.world.now())
            if not volume.deleted and volume.status is not VolumeStatus.deleting:
                plane.committer.take(NounsSnapshot(self.world.now(), (volume,)), delete_volume(volume, draft), [])
        fleets.delete(plane, self.scene.user, project, [FLEET])

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _volumes(self) -> list[Volume]:
        return list(self.watch.known.get(Volume, {}).values())

    def _instances(self) -> list[Instance]:
        return [each for each in self.watch.instances.values() if each.fleet_name == FLEET]

    def _plugged(self, handle: Handle | None) -> set[str]:
        """The machines at which the cloud has this disk, whatever it says."""
        bodies = (body for body in self.site.cloud.disks.all() if handle is not None and body["id"] == handle.id)
        return {machine for body in bodies for machine in body["attached"]}

    def committed(self, commit: Commit) -> None:
        for old, volume in commit.of(Volume):
            here = {each.instance_id for each in volume.attachments}
            if len(here) > 1 and not (volume.multi_attach and volume.read_only):
                raise ONE_PLACE.broken(f"{volume.name} is attached to {len(here)} machines")
            if old is not None and volume.blank and not old.blank:
                raise FORMATTED_ONCE.broken(f"{volume.name} counts as blank again")
            if old is not None and old.attachments and not volume.attachments:
                self._freed(old, volume)

    def _freed(self, old: Volume, volume: Volume) -> None:
        detaching = [each for each in old.attachments if each.deadline is not None]
        machines = {handle.id for each in detaching for handle in self.watch.instances[each.instance_id].handles}
        if left := machines & self._plugged(volume.handle):
            raise FREED_WITH_PROOF.broken(f"{volume.name} is free in the records, and still at {left}")

    def _mounting(self, task: Task, disk: Mapping[str, Any]) -> None:
        volume = self.watch.known[Volume][disk["volume"]]
        if task.host not in self._plugged(volume.handle):
            gone = task.host not in {body["id"] for body in self.site.cloud.machines()}
            job = self.watch.jobs.get(task.id)
            if not gone and job is not None and not job.finished and job.assignment is not None:
                raise DISKS_FIRST.broken(f"{job.name} starts, and {volume.name} isn't attached there")
        if disk["format"] and not volume.blank and task.id in self._live():
            held = next((each for each in volume.attachments if each.job_id == task.id), None)
            if held is None or held.state is not AttachmentState.attached:
                raise FORMATTED_ONCE.broken(f"{task.id} may format {volume.name}, which it doesn't hold")

    def _live(self) -> set[str]:
        return {job.id for job in self.watch.jobs.values() if not job.finished}

    def _detaching(self, handle: Handle, machine: Sequence[Handle]) -> None:
        volume = next(
            (each for each in self._volumes() if each.handle is not None and each.handle.id == handle.id), None
        )
        ids = {each.id for each in machine}
        for task in self.scene.hosts.tasks.values():
            host = self.scene.hosts.hosts.get(task.host)
            dead = host is None or host.dead or task.lost
            used = volume is not None and volume.id in task.disks and task.host in ids
            job: Job | None = self.watch.jobs.get(task.id)
            if not used or dead or job is None or (task.state == "exited" and not task.held):
                continue
            raise USED_DISKS_STAY.broken(f"{volume.name if volume else ''} is detached while {job.name} uses it")

    def unfinished(self) -> Iterator[Violation]:
        for volume in self._volumes():
            for each in volume.attachments:
                job = self.watch.jobs.get(each.job_id)
                if job is None or job.finished:
                    yield DISKS_COME_BACK.broken(f"{volume.name} is {each.state.value} for {each.run_name}")

    def left(self) -> Iterator[Violation]:
        for volume in self._volumes():
            if not volume.deleted:
                yield VOLUMES_END.broken(f"{volume.name} is {volume.status.value}")
        for instance in self._instances():
            if instance.disks:
                yield DISKS_COME_BACK.broken(f"{instance.name} still has {len(instance.disks)} disks")
        for body in self.site.cloud.disks.all():
            if OFFERED not in dict(body["tags"]):  # those were there before
                yield VOLUMES_END.broken(f"disk {body['id']} is still there")


def new_volume(scene: Scene, name: str, region: str, **fields: Any) -> Volume:
    """As users ask for it. The language has no volumes of the simulated cloud, so it is written here."""
    at = scene.world.now()
    known: dict[str, Any] = {"configuration": "{}", "backend": scene.site.backend.facts.name, "size_gib": 10}
    known |= {"blank": True, "created_at": at, "last_processed_at": at, "deadline": at + TO_CREATE, "due_at": at}
    known |= {"id": scene.site.plane.random_id(), "project_id": scene.projects[0].id}
    return Volume(name=name, region=region, **known | fields)


def create(scene: Scene, volume: Volume) -> None:
    draft = Draft(scene.world.now())
    draft.save(volume)
    draft.record(EventType.created, volume)
    draft.wake(volume.unit)
    pointer = nouns.pointer(keys.volume_name(volume.project_id, volume.name), volume.id)
    scene.site.plane.committer.take(NounsSnapshot(scene.world.now(), ()), draft.plan(), [pointer])

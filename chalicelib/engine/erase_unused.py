"""Erasing what nobody uses any more: one bounded turn at a time, so that nothing grows for ever.

An index lists what will have to go, by the time its retention starts: ended runs with logs, deleted runs, terminated
instances, ended fleets, deleted volumes, gateways and projects, archives. A turn takes the oldest of each, reads it
again by key and asks `planning.projects.erasure` whether it may go. The record that lists it is deleted last, so a turn
that crashes leaves the rest to the next one, and two turns at once do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING

from chalicelib.billing.usage import run_cost
from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.exports import Export
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import DAY, SECOND, Micros, sortable
from chalicelib.domain.jobs import Job
from chalicelib.domain.keys import Key
from chalicelib.domain.retention import Retention
from chalicelib.domain.runs import Run
from chalicelib.domain.tenants import Archive, Project, UserUploads
from chalicelib.domain.volumes import Volume
from chalicelib.engine.ports import Clock
from chalicelib.engine.read import Reader
from chalicelib.engine.stray_blobs import StrayBlobs
from chalicelib.errors import Conflict, StorageFull
from chalicelib.planning.projects import erasure
from chalicelib.store import nouns
from chalicelib.store.listing import all_of, every
from chalicelib.store.port import MAX_CHANGES, Change, Check, Delete, Index, Record, Store

if TYPE_CHECKING:
    from chalicelib.store.blobs import Blobs
    from chalicelib.store.logs import LogStore

log = logging.getLogger(__name__)

BATCH = 500  # of each kind a turn
PATIENCE: Micros = 60 * SECOND  # after which a turn begins nothing more
_OF_PROJECT = (
    "authority/",
    "automation/",
    "backend/",
    "costs/",
    "default-gateway",
    "export/",
    "import/",
    "member/",
    "quota/",
    "repo/",
    "run-name/",
    "secret/",
)  # what stands beside a project's status


@dataclass
class Erased:
    """What a turn erased, by id."""

    projects: list[str] = field(default_factory=list)  # what was left of them,
    forgotten: list[str] = field(default_factory=list)  # and at last their own records
    runs: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)  # of these runs
    jobs: list[str] = field(default_factory=list)  # earlier ones of runs that live
    instances: list[str] = field(default_factory=list)
    fleets: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    gateways: list[str] = field(default_factory=list)
    archives: list[str] = field(default_factory=list)
    blobs: list[str] = field(default_factory=list)  # that no record named
    events: int = 0


class Eraser:
    def __init__(self, store: Store, blobs: Blobs, logs: LogStore, clock: Clock, retention: Retention) -> None:
        self._store, self._blobs, self._logs, self._clock, self._retention = store, blobs, logs, clock, retention
        self._read = Reader(store)

    def run(self) -> Erased:
        """One turn."""
        done, until = Erased(), self._clock.now() + PATIENCE
        retention = self._retention
        self._each("gsi1", keys.CLOSINGS, retention.deleted, until, lambda record: self._project(record, done))
        self._each("gsi1", keys.CLOSED, retention.events, until, lambda record: self._last_of_project(record, done))
        self._each("gsi2", keys.DELETED_RUNS, retention.deleted, until, lambda record: self._run(record, done))
        self._each("gsi2", keys.ENDED_RUNS, retention.logs, until, lambda record: self._logs_of(record, done))
        self._each("gsi2", keys.ENDED_INSTANCES, retention.fleets, until, lambda record: self._instance(record, done))
        self._each("gsi2", keys.ENDED_FLEETS, retention.fleets, until, lambda record: self._fleet(record, done))
        self._each("gsi2", keys.ENDED_VOLUMES, retention.fleets, until, lambda record: self._volume(record, done))
        self._each("gsi2", keys.ENDED_GATEWAYS, retention.fleets, until, lambda record: self._gateway(record, done))
        for project_id in self._projects():
            for record in self._living(project_id):
                if self._clock.now() < until:
                    with _apart(f"erasing earlier jobs of {record.key.pk}"):
                        self._earlier(record, done)
        with _apart("erasing archives"):
            self._archives(until, done)
        with _apart("erasing leftovers"):
            done.blobs += StrayBlobs(self._store, self._blobs, self._clock, self._projects).run()
        for project_id in ("", *self._projects()):
            if self._clock.now() < until:
                with _apart(f"erasing events of {project_id}"):
                    self._events(project_id, done)
        return done

    def _each(self, index: Index, partition: str, days: int, until: Micros, erase: Callable[[Record], None]) -> None:
        with _apart(f"listing {partition}"):
            for record in self._oldest(index, partition, days):
                if self._clock.now() >= until:
                    return
                with _apart(f"erasing {record.key.pk}"):
                    erase(record)

    def _oldest(self, index: Index, partition: str, days: int) -> Sequence[Record]:
        before = self._clock.now() - days * DAY + 1
        return self._store.query(index, partition, high=sortable(before), limit=BATCH).records

    # --- runs --------------------------------------------------------------------------------------------------------

    def _run(self, listed: Record, done: Erased) -> None:
        run, jobs = self._read.run_and_jobs(listed.key.pk.partition("/")[2])
        if run is None or not erasure.run_erasable(run, jobs, self._retention, self._clock.now()):
            return
        self._delete_logs(jobs)
        status = nouns.key_of(run)
        partitions = (status.pk, keys.traffic(run.id, "").pk)
        records = [record for pk in partitions for record in all_of(self._store, "main", pk)]
        beside = [Delete(record.key) for record in records if record.key != status]
        self._delete([*beside, Delete(status, run.version)])
        done.runs.append(run.id)

    def _logs_of(self, listed: Record, done: Erased) -> None:
        run, jobs = self._read.run_and_jobs(listed.key.pk.partition("/")[2])
        if run is None or not erasure.logs_erasable(run, jobs, self._retention, self._clock.now()):
            return
        self._delete_logs(jobs)
        self._store.commit([nouns.put(run.with_(logs_erased=True))])
        done.logs.append(run.id)

    def _living(self, project_id: str) -> Iterator[Record]:
        """The live runs that may have jobs whose logs would go: old ones, and those that start by a schedule, or whose
        replicas come and go."""
        before = self._clock.now() - self._retention.logs * DAY
        for record in all_of(self._store, "gsi2", keys.live_runs_of(project_id)):
            run = nouns.read(Run, record)
            if run.submitted_at <= before or run.triggered_at is not None or run.scales:
                yield record

    def _earlier(self, listed: Record, done: Erased) -> None:
        run, jobs = self._read.run_and_jobs(listed.key.pk.partition("/")[2])
        if run is None:
            return
        now = self._clock.now()
        old = erasure.erasable_submissions(run, jobs, self._retention, now)[: MAX_CHANGES - 1]
        if not old:
            return
        self._delete_logs(old)
        after = run.with_(erased_cost=run_cost(run, old, now))
        self._store.commit([nouns.put(after), *(Delete(nouns.key_of(job), job.version) for job in old)])
        done.jobs += [job.id for job in old]

    def _delete_logs(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._logs.delete(job.project_id, job.id)

    # --- fleets ------------------------------------------------------------------------------------------------------

    def _instance(self, listed: Record, done: Erased) -> None:
        """With its agent's record. Runs still record where they ran, and events what it cost."""
        instance = nouns.find(self._store, Instance, listed.key)
        if instance is None or not erasure.instance_erasable(instance, self._retention, self._clock.now()):
            return
        beside = [Delete(keys.presence(instance.id)), Delete(keys.contact(instance.id))]
        self._store.commit([*beside, Delete(listed.key, instance.version)])
        done.instances.append(instance.id)

    def _fleet(self, listed: Record, done: Erased) -> None:
        """With its specs, and its name unless another fleet has it."""
        fleet = nouns.find(self._store, Fleet, listed.key)
        if fleet is None or not erasure.fleet_erasable(fleet, self._retention, self._clock.now()):
            return
        self._free(keys.fleet_name(fleet.project_id, fleet.name), fleet.id)
        self._delete([Delete(record.key) for record in every(self._store, listed.key.pk, "body/")])
        self._delete([Delete(listed.key, fleet.version)])
        done.fleets.append(fleet.id)

    def _volume(self, listed: Record, done: Erased) -> None:
        """With its name, and its claim to a disk, unless another volume has them."""
        volume = nouns.find(self._store, Volume, listed.key)
        if volume is None or not erasure.volume_erasable(volume, self._retention, self._clock.now()):
            return
        self._free(keys.volume_name(volume.project_id, volume.name), volume.id)
        if volume.external:
            disk = volume.handle.id if volume.handle else volume.external_id
            self._free(keys.disk(volume.backend, volume.region, disk), volume.id)
        self._store.commit([Delete(listed.key, volume.version)])
        done.volumes.append(volume.id)

    def _gateway(self, listed: Record, done: Erased) -> None:
        """With its name, and its place as its project's default, unless another gateway has them."""
        gateway = nouns.find(self._store, Gateway, listed.key)
        if gateway is None or not erasure.gateway_erasable(gateway, self._retention, self._clock.now()):
            return
        self._free(keys.gateway_name(gateway.project_id, gateway.name), gateway.id)
        self._free(keys.default_gateway(gateway.project_id), gateway.id)
        self._store.commit([Delete(listed.key, gateway.version)])
        done.gateways.append(gateway.id)

    def _free(self, name: Key, id_: str) -> None:
        """Remove the name, if it still points to this."""
        pointer = nouns.find_target(self._store, name)
        if pointer is not None and pointer[0] == id_:
            self._store.commit([Delete(name, pointer[1])])

    # --- projects ----------------------------------------------------------------------------------------------------

    def _project(self, listed: Record, done: Erased) -> None:
        """Its runs are deleted, as by their owners, and erased like others; its own record stays as long as its events.
        A deletion that is taken back meanwhile writes the project, and this loses."""
        closing, project = self._closing(listed)
        if closing is None or project is None:
            return
        if not erasure.project_erasable(closing, project, self._retention, self._clock.now()):
            return
        still = Check(nouns.key_of(project), project.version)
        runs = [record.key for record in self._store.query("gsi1", keys.runs_of(project.id), limit=BATCH).records]
        found = nouns.find_many(self._store, Run, runs) if runs else []
        gone = [run.with_(deleted=True, deleted_at=closing.began_at, due_at=None) for run in found if run]
        records = chain.from_iterable(every(self._store, nouns.key_of(project).pk, sort) for sort in _OF_PROJECT)
        rest = [key for record in islice(records, BATCH) for key in _with_pointers(record)]
        changes: list[Change] = [*map(nouns.put, gone), *map(Delete, rest)]
        for start in range(0, len(changes), MAX_CHANGES - 1):
            self._store.commit([still, *changes[start : start + MAX_CHANGES - 1]])
        if not changes:
            self._store.commit([still, nouns.put(closing.with_(erased=True))])
            done.projects.append(project.id)

    def _last_of_project(self, listed: Record, done: Erased) -> None:
        closing, project = self._closing(listed)
        if closing is None or project is None:
            return
        key = nouns.key_of(project)
        beside = len(self._store.query("main", key.pk, limit=2).records) > 1
        named = self._store.query("main", keys.events_of(project.id), limit=1).records
        if beside or named or not erasure.project_record_erasable(closing, project, self._retention, self._clock.now()):
            return
        self._store.commit([Delete(key, project.version), Delete(listed.key, closing.version)])
        done.forgotten.append(project.id)

    def _closing(self, listed: Record) -> tuple[Closing | None, Project | None]:
        closing = nouns.find(self._store, Closing, listed.key)
        return closing, None if closing is None else nouns.find(self._store, Project, keys.project(closing.id))

    def _projects(self) -> Iterator[str]:
        """The ids of all projects of which something may be left."""
        for record in every(self._store, "projects", "name/"):
            yield nouns.pointed(record)
        for partition in (keys.CLOSINGS, keys.CLOSED):
            for record in all_of(self._store, "gsi1", partition):
                yield nouns.read(Closing, record).id

    # --- archives ----------------------------------------------------------------------------------------------------

    def _archives(self, until: Micros, done: Erased) -> None:
        unused = self._oldest("gsi1", keys.UNUSED_ARCHIVES, erasure.UNUSED_DAYS)
        listed = [record.key for record in (*self._oldest("gsi1", keys.ARCHIVES, self._retention.archives), *unused)]
        found = nouns.find_many(self._store, Archive, listed) if listed else []
        old = [each for each in found if each and erasure.archive_erasable(each, self._retention, self._clock.now())]
        unerased = [archive for archive in old if not archive.erased]
        used = self._used(unerased) if unerased else frozenset()
        for archive in old:
            if self._clock.now() >= until:
                return
            with _apart(f"erasing archive {archive.id}"):
                if archive.id in used:
                    self._store.commit([nouns.put(archive.with_(used_at=self._clock.now(), submitted=True))])
                else:
                    self._archive(archive, done)

    def _used(self, archives: Sequence[Archive]) -> frozenset[str]:
        """Those that a live run needs: its spec has the archive's id, or the hash of its code. This searches the text
        without parsing it, because there may be thousands of live runs."""
        marks = [(one.id, one.id.encode(), one.hash.encode()) for one in archives]
        return frozenset(
            id_
            for project_id in self._projects()
            for run in all_of(self._store, "gsi2", keys.live_runs_of(project_id))
            for body in every(self._store, run.key.pk, "body/")
            for id_, by_id, by_hash in marks
            if by_id in body.body or by_hash in body.body
        )

    def _archive(self, archive: Archive, done: Erased) -> None:
        """Marked first, so that nothing relies on it while its bytes are deleted."""
        if not archive.erased:
            marked = archive.with_(erased=True, charged_to="")
            self._store.commit([nouns.put(marked), *self._discharge(archive)])
            archive = marked.with_(version=marked.version + 1)
        self._blobs.delete(archive.blob)
        self._store.commit([Delete(nouns.key_of(archive), archive.version)])
        done.archives.append(archive.id)

    def _discharge(self, archive: Archive) -> Iterator[Change]:
        """What it took of its user's uploads is free again."""
        uploads = nouns.find(self._store, UserUploads, keys.uploads(archive.charged_to)) if archive.charged_to else None
        if uploads is not None:
            left = uploads.minus(archive.size)
            yield nouns.put(left) if left.size else Delete(nouns.key_of(uploads), uploads.version)

    # --- events ------------------------------------------------------------------------------------------------------

    def _events(self, project_id: str, done: Erased) -> None:
        found = self._oldest("main", keys.events_of(project_id), self._retention.events)
        self._delete([Delete(record.key) for record in found])
        done.events += len(found)

    def _delete(self, changes: Sequence[Delete]) -> None:
        for start in range(0, len(changes), MAX_CHANGES):
            self._store.commit(changes[start : start + MAX_CHANGES])


@contextmanager
def _apart(what: str) -> Iterator[None]:
    """A failure is logged and left to the next turn; it holds up nothing else."""
    try:
        yield
    except Conflict:
        log.info("%s: another process was faster", what)
    except StorageFull as error:
        log.error("%s failed: %s", what, error)
    except Exception:  # a bug, or the store
        log.exception("%s failed", what)


def _with_pointers(record: Record) -> list[Key]:
    """The key of what stands beside a project's status, after those of the pointers that other projects have to it."""
    of_others = nouns.read(Export, record).pointers if record.key.sk.startswith("export/") else ()
    return [*sorted(of_others), record.key]

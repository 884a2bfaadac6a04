"""Upgrades records of older versions once, in bounded steps.

Passwords and keys that were stored in clear are sealed; ended nouns get the index entry by which they are erased, and a
deleted project gets the closing that lists what is left of it. So the eraser (`engine/erase_unused.py`) needs to know
only current records. Indexes can't show missing entries, so the whole table is read. The position is stored after each
step: a restart continues there, and once everything is upgraded a step reads one record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.keys import Key
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Archive, Project
from chalicelib.engine.ports import Clock
from chalicelib.errors import Conflict
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.port import Change, Check, Put, Record, Store
from chalicelib.store.record_form import FORM
from chalicelib.store.seal import Sealer

BATCH = 500  # records a page
PAGES = 10  # per step: a million records take a day and a half
PATIENCE: Micros = 30 * SECOND  # after which a step begins no further page


class UpgradeProgress(Noun):
    """The progress of the upgrade through the table."""

    form: ClassVar[int] = FORM

    after: tuple[str, str] | None = None  # the key of the last record that was read
    done: bool = False

    def place(self) -> keys.Place:
        return keys.Place(keys.renewal(self.form))


class RecordUpgrader:
    def __init__(self, store: Store, seal: Sealer, clock: Clock) -> None:
        self._store, self._seal, self._clock = store, seal, clock

    def run(self) -> UpgradeProgress:
        """Do one step, and return the progress."""
        at = nouns.find(self._store, UpgradeProgress, keys.renewal(UpgradeProgress.form)) or UpgradeProgress()
        if at.done:
            return at
        next_one = self._upgrade_pages(at)
        try:
            self._store.commit([nouns.put(next_one)])
        except Conflict:
            return at  # another step ran at the same time: repeating it is harmless
        return next_one

    def _upgrade_pages(self, at: UpgradeProgress) -> UpgradeProgress:
        after, until = None if at.after is None else Key(*at.after), self._clock.now() + PATIENCE
        for _ in range(PAGES):
            if self._clock.now() > until:
                break
            page = self._store.scan(after, limit=BATCH)
            for record in page:
                self._upgrade(record)
            if not page:
                return at.with_(done=True)
            after = page[-1].key
        return at.with_(after=after)

    def _upgrade(self, record: Record) -> None:
        """Rewrite a record that would be stored differently today. After a conflict it is up to date already."""
        changes = self._changes(record)
        if changes:
            try:
                self._store.commit(changes)
            except Conflict:
                return

    def _changes(self, record: Record) -> Sequence[Change]:
        family, _, id_ = record.key.pk.partition("/")
        if record.key.sk == keys.STATUS:
            return self._of_status(family, record)
        if record.key.sk.startswith("body/") and family == "run":
            return self._of_run_body(id_, record)
        if record.key.sk.startswith("body/") and family == "fleet":
            return self._of_fleet_body(id_, record)
        return ()

    def _of_status(self, family: str, record: Record) -> Sequence[Change]:
        if family == "run":
            run = nouns.read(Run, record)
            return _moved(record, run) if run.finished else ()
        if family == "instance":
            instance = nouns.read(Instance, record)
            return _moved(record, instance) if instance.status is InstanceStatus.terminated else ()
        if family == "fleet":
            fleet = nouns.read(Fleet, record)
            return _moved(record, fleet) if fleet.ended else ()
        if family == "closing":
            return _moved(record, nouns.read(Closing, record))
        if family == "project":
            return self._of_project(nouns.read(Project, record))
        return self._of_archive(record) if family == "archive" else ()

    def _of_project(self, project: Project) -> Sequence[Change]:
        """A project that was deleted before closings existed gets one, which ends everything that still runs in it."""
        if not project.deleted or self._store.get(keys.closing(project.id)) is not None:
            return ()
        now = self._clock.now()
        closing = Closing(id=project.id, began_at=now, due_at=now + MINUTE)
        return (Check(nouns.key_of(project), project.version), nouns.put(closing))

    def _of_archive(self, record: Record) -> Sequence[Change]:
        """An old archive has no time of last use, so its retention starts now."""
        archive = nouns.read(Archive, record)
        used_at = archive.used_at or self._clock.now()
        return _moved(record, archive.with_(used_at=used_at))

    def _of_run_body(self, run_id: str, record: Record) -> Sequence[Change]:
        body, context = nouns.read(RunBody, record), sealed_specs.of_run(run_id)
        specs = tuple(sealed_specs.resealed(self._seal, JobSpec, text, context) for text in body.job_specs)
        spec = sealed_specs.resealed(self._seal, RunSpec, body.run_spec, context)
        sealed = body.with_(run_spec=spec, job_specs=specs)
        return () if sealed == body else (nouns.put(sealed),)

    def _of_fleet_body(self, fleet_id: str, record: Record) -> Sequence[Change]:
        body = nouns.read(FleetBody, record)
        sealed = body.with_(
            spec=sealed_specs.resealed(self._seal, FleetSpec, body.spec, sealed_specs.of_fleet(fleet_id))
        )
        return () if sealed == body else (nouns.put(sealed),)


def _moved(record: Record, noun: Noun) -> Sequence[Change]:
    """Writes the noun again if its index entries would be different today."""
    change: Put = nouns.put(noun)
    now = change.record
    return () if (now.gsi1, now.gsi2, now.due) == (record.gsi1, record.gsi2, record.due) else (change,)

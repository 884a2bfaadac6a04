"""Records of older versions, brought up to date once, a bounded turn at a time.

Passwords and keys that were stored in clear are sealed; what has ended gets the index entry by which it is erased, and
a deleted project the closing that lists what is left of it. So the erasing itself (`engine/erasing.py`) needs to know
only today's records. Indexes can't show what lacks an entry, so the whole table is read. The position is stored after
each turn: a restart continues there, and once all is done a turn reads one record.
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
from chalicelib.store.seal import Sealer

BATCH = 500  # records a page
PAGES = 10  # a turn: a million records take a day and a half
PATIENCE: Micros = 30 * SECOND  # after which a turn begins no other page


class Renewal(Noun):
    """How far it has got."""

    form: ClassVar[int] = 2  # one higher whenever there is something new to bring up to date

    after: tuple[str, str] | None = None  # the key of the last record that was looked at
    done: bool = False

    def place(self) -> keys.Place:
        return keys.Place(keys.renewal(self.form))


class Renewer:
    def __init__(self, store: Store, seal: Sealer, clock: Clock) -> None:
        self._store, self._seal, self._clock = store, seal, clock

    def run(self) -> Renewal:
        """One turn; where it got to."""
        at = nouns.find(self._store, Renewal, keys.renewal(Renewal.form)) or Renewal()
        if at.done:
            return at
        next_one = self._turn(at)
        try:
            self._store.commit([nouns.put(next_one)])
        except Conflict:
            return at  # another turn ran at the same time: repeating it is harmless
        return next_one

    def _turn(self, at: Renewal) -> Renewal:
        after, until = None if at.after is None else Key(*at.after), self._clock.now() + PATIENCE
        for _ in range(PAGES):
            if self._clock.now() > until:
                break
            page = self._store.scan(after, limit=BATCH)
            for record in page:
                self._renew(record)
            if not page:
                return at.with_(done=True)
            after = page[-1].key
        return at.with_(after=after)

    def _renew(self, record: Record) -> None:
        """Rewrites records that would be stored differently today. Whatever is written meanwhile is up to date."""
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
        """A project that was deleted before closings existed gets one, which ends whatever still runs in it."""
        if not project.deleted or self._store.get(keys.closing(project.id)) is not None:
            return ()
        now = self._clock.now()
        closing = Closing(id=project.id, began_at=now, due_at=now + MINUTE)
        return (Check(nouns.key_of(project), project.version), nouns.put(closing))

    def _of_archive(self, record: Record) -> Sequence[Change]:
        """Nobody knows when an old one was last used, so it counts from now."""
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
    """The noun, where it would stand elsewhere in the indexes today."""
    change: Put = nouns.put(noun)
    now = change.record
    return () if (now.gsi1, now.gsi2, now.due) == (record.gsi1, record.gsi2, record.due) else (change,)

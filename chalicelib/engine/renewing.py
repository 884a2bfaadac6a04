"""Records of older versions, brought up to date once, a bounded turn at a time.

Passwords and keys that were stored in clear are sealed, and ended and deleted runs get the index entry by which they
are erased. The events name every run and fleet there ever was, deleted ones too, so each project's are walked through.
The position is stored after each turn: a restart continues there, and once all is done a turn reads one record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.fleets import FleetBody
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.errors import Conflict
from chalicelib.store import nouns, sealed_specs
from chalicelib.store.listing import all_of, every
from chalicelib.store.port import Put, Record, Store
from chalicelib.store.seal import Sealer

BATCH = 500  # events a turn


class Renewal(Noun):
    """How far the walk has come."""

    form: ClassVar[int] = 1  # one higher whenever there is something new to bring up to date

    project_id: str = ""  # the one whose events are being walked through; in the order of ids
    after: str = ""  # the last of its events that were looked at
    done: bool = False

    def place(self) -> keys.Place:
        return keys.Place(keys.renewal(self.form))


class Renewer:
    def __init__(self, store: Store, seal: Sealer) -> None:
        self._store, self._seal = store, seal

    def run(self) -> Renewal:
        """One turn; where it got to."""
        at = nouns.find(self._store, Renewal, keys.renewal(Renewal.form)) or Renewal()
        if at.done:
            return at
        next_one = self._turn(at)
        try:
            self._store.commit([nouns.put(next_one)])
        except Conflict:
            return at  # another turn went at the same time: nothing is lost by repeating
        return next_one

    def _turn(self, at: Renewal) -> Renewal:
        if not at.project_id:
            return self._next_project(at)
        low = f"{at.after}\0" if at.after else ""
        page = self._store.query("main", keys.events_of(at.project_id), low=low, limit=BATCH)
        events = [nouns.read(Event, record) for record in page.records]
        for run_id in dict.fromkeys(event.run_id for event in events if event.run_id):
            self._renew(self._of_run(run_id))
        for fleet_id in dict.fromkeys(event.fleet_id for event in events if event.fleet_id):
            self._renew(self._of_fleet(fleet_id))
        if page.cursor is None:
            return self._next_project(at)
        return at.with_(after=page.records[-1].key.sk)

    def _next_project(self, at: Renewal) -> Renewal:
        ids = (nouns.pointed(record) for record in every(self._store, "projects", "name/"))
        following = min((id_ for id_ in ids if id_ > at.project_id), default="")
        return at.with_(project_id=following, after="", done=not following)

    def _renew(self, pairs: Iterable[tuple[Record, Noun]]) -> None:
        """Writes each noun that would be stored otherwise today. One that somebody writes meanwhile is up to date."""
        for record, noun in pairs:
            change: Put = nouns.put(noun)
            now = change.record
            if (now.gsi1, now.gsi2, now.due) != (record.gsi1, record.gsi2, record.due) or noun != _read(record):
                try:
                    self._store.commit([change])
                except Conflict:
                    continue

    def _of_run(self, run_id: str) -> Iterable[tuple[Record, Noun]]:
        context = sealed_specs.of_run(run_id)
        for record in all_of(self._store, "main", f"run/{run_id}"):
            noun = _read(record)
            if isinstance(noun, RunBody):
                specs = tuple(sealed_specs.resealed(self._seal, JobSpec, text, context) for text in noun.job_specs)
                spec = sealed_specs.resealed(self._seal, RunSpec, noun.run_spec, context)
                yield record, noun.with_(run_spec=spec, job_specs=specs)
            elif isinstance(noun, Run) and noun.finished:
                yield record, noun

    def _of_fleet(self, fleet_id: str) -> Iterable[tuple[Record, Noun]]:
        for record in every(self._store, f"fleet/{fleet_id}", "body/"):
            body = nouns.read(FleetBody, record)
            spec = sealed_specs.resealed(self._seal, FleetSpec, body.spec, sealed_specs.of_fleet(fleet_id))
            yield record, body.with_(spec=spec)


def _read(record: Record) -> Noun | None:
    if record.key.sk.startswith("body/"):
        return nouns.read(FleetBody if record.key.pk.startswith("fleet/") else RunBody, record)
    return nouns.read(Run, record) if record.key.sk == keys.STATUS else None

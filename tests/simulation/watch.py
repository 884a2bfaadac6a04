"""Sees every commit as it happens, and knows every noun as it was last written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Job
from chalicelib.domain.keys import Key
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run
from chalicelib.domain.services import Traffic
from chalicelib.engine.kinds import Kinds
from chalicelib.store import nouns
from chalicelib.store.history import events_in
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change, Put


@dataclass(frozen=True)
class Commit:
    """What one commit wrote: every noun before and after, and the events with them."""

    nouns: list[tuple[Any, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def of(self, kind: type[Noun]) -> list[tuple[Any, Any]]:
        return [(old, new) for old, new in self.nouns if isinstance(new, kind)]


class Watch:
    """`known[kind][id]` is the noun as last written, for every kind in the table of nouns."""

    def __init__(self, store: MemoryStore, kinds: Kinds, on_commit: Callable[[Commit], None]) -> None:
        self._kinds: Mapping[str, type[Noun]] = {row.name: row.noun for row in kinds.rows if row.noun is not None}
        self.known: dict[type[Noun], dict[str, Any]] = {kind: {} for kind in self._kinds.values()}
        self.runs: Mapping[str, Run] = self.known[Run]
        self.jobs: Mapping[str, Job] = self.known[Job]
        self.instances: Mapping[str, Instance] = self.known[Instance]
        self.fleets: Mapping[str, Fleet] = self.known[Fleet]
        self._on_commit = on_commit
        store.after = self._committed

    def _kind_of(self, key: Key) -> type[Noun] | None:
        """The noun of a record; None for those that no history checks."""
        head, part = key.pk.partition("/")[0], key.sk.partition("/")[0]
        if head == Traffic.kind:  # the rest is the name of a door
            return self._kinds.get(head)
        return self._kinds.get(head if part == keys.STATUS else part)

    def _committed(self, changes: Sequence[Change]) -> None:
        commit = Commit()
        for change in changes:
            if not isinstance(change, Put):
                continue
            if change.key.pk.startswith(keys.EVENTS):
                commit.events.extend(events_in(change.record))
                continue
            kind = self._kind_of(change.key)
            if kind is None:
                continue
            noun: Any = nouns.read(kind, change.record)
            commit.nouns.append((self.known[kind].get(noun.id), noun))
            self.known[kind][noun.id] = noun
        self._on_commit(commit)

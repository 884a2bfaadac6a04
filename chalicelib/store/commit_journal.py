"""What this process has written lately, in the order of its commits: for callers that follow changes.

Where one process is the only writer, its journal misses nothing: a commit is noted once it can be read, so whoever has
read up to a place and asks again from there gets each later one. The journal is short and in memory. Whoever comes back
after a restart, or from too far behind, is told so, and reads everything again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from chalicelib.domain.keys import STATUS
from chalicelib.domain.touched import Touched
from chalicelib.store.port import Change, Put, Record

LENGTH = 20_000  # notes
SHOWN = ("run", "fleet", "instance", "volume", "gateway")
_OWNERS = (("instance", b'"fleet_id":"', "fleet"), ("certificate", b'"gateway_id":"', "gateway"))
_PROJECT = b'"project_id":"'


class CommitJournal:
    """`ChangeLog` of one process. `boot` tells it from those of other starts."""

    exact = True

    def __init__(self, boot: str, length: int = LENGTH) -> None:
        self._boot, self._lock = boot, threading.Lock()
        self._notes: deque[tuple[int, str, str]] = deque(maxlen=length)  # place, project, unit
        self._end = 0

    def wrote(self, changes: Sequence[Change]) -> set[str]:
        """Note a commit. Returns the projects whose followers may want to know."""
        found = dict.fromkeys(note for change in changes if isinstance(change, Put) for note in _notes(change.record))
        with self._lock:
            for project, unit in found:
                self._end += 1
                self._notes.append((self._end, project, unit))
        return {project for project, _ in found}

    def mark(self) -> str:
        return f"{self._boot}.{self._end}"

    def since(self, mark: str, projects: Collection[str]) -> Touched | None:
        boot, _, text = mark.rpartition(".")
        place = int(text) if text.isascii() and text.isdecimal() else -1
        with self._lock:
            first = self._end - len(self._notes)  # the place before the oldest note
            if boot != self._boot or not first <= place <= self._end:
                return None
            units = set()
            for at, project, unit in reversed(self._notes):
                if at <= place:
                    break
                if project in projects:
                    units.add(unit)
            behind = self._end - place > (self._notes.maxlen or 0) // 2  # before its place is forgotten
            return Touched(frozenset(units), f"{self._boot}.{self._end}" if units or behind else mark)


def _notes(record: Record) -> Iterator[tuple[str, str]]:
    kind = record.key.pk.partition("/")[0]
    if record.key.sk != STATUS and kind != "run":  # of which its jobs show
        return
    project = _field(record.body, _PROJECT)
    if not project:
        return
    if kind in SHOWN:
        yield project, record.key.pk
    for of, field, owner in _OWNERS:
        if kind == of:
            yield project, f"{owner}/{_field(record.body, field)}"


def _field(body: bytes, name: bytes) -> str:
    """The value of a field that is an id. Fields of nouns come before those of what they contain."""
    start = body.find(name)
    return "" if start < 0 else body[start + len(name) : body.index(b'"', start + len(name))].decode()

"""What the folder of a restored server says about it, read beside the server that may be running there."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.restorations import Restoration
from chalicelib.engine.hold import go_on as say_go_on
from chalicelib.errors import Refused
from chalicelib.runtime.backup import DATABASE
from chalicelib.runtime.clock import SystemClock
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore


def restoration(folder: Path, *, go_on: bool) -> tuple[Restoration | None, Micros]:
    """The mark of the folder, and the time. `go_on`: let its server act."""
    path = folder / DATABASE
    if not path.is_file():
        raise Refused(f"{folder} isn't the data folder of a server.", hint="Name it with --data-dir.")
    clock = SystemClock()
    with closing(SqliteStore(path)) as store:
        mark = say_go_on(store, clock) if go_on else nouns.find(store, Restoration, keys.RESTORATION)
    return mark, clock.now()

"""Keeps the books of each project: what days that are over cost, and what it looks like every quarter of an hour."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from chalicelib.engine.cost_days import close_days
from chalicelib.engine.moments import store_moment
from chalicelib.engine.ports import Clock
from chalicelib.engine.read import Reader
from chalicelib.errors import Conflict, StorageFull
from chalicelib.store import nouns
from chalicelib.store.listing import every

log = logging.getLogger(__name__)


def keep_books(read: Reader, clock: Clock) -> None:
    """One turn. What fails of a project is logged, left to the next turn, and holds up no other."""
    for record in every(read.store, "projects", "name/"):
        project_id = nouns.pointed(record)
        _apart(f"counting the costs of {project_id}", partial(close_days, read, clock, project_id))
        _apart(f"storing a moment of {project_id}", partial(store_moment, read, clock, project_id))


def _apart(what: str, work: Callable[[], object]) -> None:
    try:
        work()
    except Conflict:
        log.info("%s: another process was faster", what)
    except StorageFull as error:
        log.error("%s failed: %s", what, error)
    except Exception:  # a bug, or the store
        log.exception("%s failed", what)

"""Which units are being worked on, so that every line logged meanwhile can name them, however deep below it is written.

The engine and the agents' calls say it here; a root that keeps structured logs reads it. Nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_ids: ContextVar[Mapping[str, str]] = ContextVar("ids", default={})  # noqa: B039 - never written to


@contextmanager
def about(unit: str) -> Iterator[None]:
    """`unit` is at work, within whatever is already."""
    kind, _, unit_id = unit.partition("/")
    before = _ids.set({**_ids.get(), f"{kind}_id": unit_id})
    try:
        yield
    finally:
        _ids.reset(before)


def ids() -> Mapping[str, str]:
    """`{"instance_id": "…"}`: each unit at work, by its kind."""
    return _ids.get()

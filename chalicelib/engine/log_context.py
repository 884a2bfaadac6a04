"""The units that are being processed, so that every log line can name them, however deep in the call stack it is
written.

The engine and the agents' calls set this context; roots with structured logs read it. No decision depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_ids: ContextVar[Mapping[str, str]] = ContextVar("ids", default={})  # noqa: B039 - never written to


@contextmanager
def unit_context(unit: str) -> Iterator[None]:
    """Add `unit` to the units being processed."""
    kind, _, unit_id = unit.partition("/")
    before = _ids.set({**_ids.get(), f"{kind}_id": unit_id})
    try:
        yield
    finally:
        _ids.reset(before)


def ids() -> Mapping[str, str]:
    """The ids of the units being processed, by kind: `{"instance_id": "…"}`."""
    return _ids.get()

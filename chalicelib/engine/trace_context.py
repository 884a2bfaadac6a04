"""The trace of the request that is being served, for whatever it submits. Every request loads this, so it is light."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chalicelib.domain.instants import Micros
    from chalicelib.domain.runs import Run
    from chalicelib.store.port import Put

HEADER = "traceparent"
_served: ContextVar[tuple[str, Micros] | None] = ContextVar("served", default=None)


@contextmanager
def request_trace(header: str, at: Micros) -> Iterator[None]:
    """`header`: the request's `traceparent`, if it has one. `at`: when it came."""
    before = _served.set((header, at))
    try:
        yield
    finally:
        _served.reset(before)


def kept(run: Run, traces: bool) -> list[Put]:
    """What is kept about the trace of a run that is submitted; nothing if nobody collects any, or its caller wants
    none."""
    if not traces:
        return []
    from chalicelib.domain.traces import PendingTrace, context_of
    from chalicelib.store import nouns

    header, at = _served.get() or ("", run.submitted_at)
    caller = context_of(header)
    if caller is not None and not caller.sampled:
        return []
    return [nouns.put(PendingTrace(run_id=run.id, at=at, caller="" if caller is None else caller.header))]

"""The units and the request that are being processed, so that every log line can name them, however deep in the call
stack it is written.

The engine and the agents' calls set this context, and the embedded server that of requests; roots with structured logs
read it. No decision depends on it.
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


_request: ContextVar[dict[str, str] | None] = ContextVar("request", default=None)


@contextmanager
def request_context(request_id: str) -> Iterator[Mapping[str, str]]:
    """What is noted about the request that is served within."""
    noted = {"request_id": request_id}
    before = _request.set(noted)
    try:
        yield noted
    finally:
        _request.reset(before)


def note(**known: str) -> None:
    """Note something about the request being served, for its line in the log."""
    noted = _request.get()
    if noted is not None:
        noted.update(known)


def ids() -> Mapping[str, str]:
    """The ids of the units being processed, by kind: `{"instance_id": "…"}`, and of the request."""
    noted = _request.get()
    return _ids.get() if noted is None else {"request_id": noted["request_id"], **_ids.get()}

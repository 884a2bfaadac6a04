"""Traces of runs: where one begins, kept until it is exported, and the spans that it is made of.

A run's trace is made afterwards, from the times that its records, its history and its log have anyway. So a restart
loses none of it, and nothing is measured for it while the run is on its way.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun

KEPT: Micros = 2 * DAY  # a trace that can't be exported for so long is lost
_FORM = re.compile(r"00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})")

Trace = Sequence["Span"]
Export = Callable[[Trace], bool]  # sends spans; False if that failed, and is worth another try


@dataclass(frozen=True)
class TraceContext:
    """A place in a trace, as W3C's `traceparent` says it."""

    trace_id: str  # 32 hexadecimal digits
    span_id: str  # 16
    sampled: bool = True

    @property
    def header(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-0{int(self.sampled)}"


def context_of(header: str) -> TraceContext | None:
    """None for what isn't a `traceparent`: then the trace begins here, as the standard wants."""
    found = _FORM.fullmatch(header)
    if found is None or not (found["trace"].strip("0") and found["span"].strip("0")):
        return None
    return TraceContext(found["trace"], found["span"], bool(int(found["flags"], 16) & 1))


def trace_id_of(name: str) -> str:
    return hashlib.sha256(f"trace/{name}".encode()).hexdigest()[:32]


def span_id_of(*names: str) -> str:
    """The same span has the same id, so that one that is exported again is the same to whoever collects them."""
    return hashlib.sha256("/".join(("span", *names)).encode()).hexdigest()[:16]


class PendingTrace(Noun):
    """A run whose trace isn't exported yet."""

    kind: ClassVar[str] = "pending-trace"

    run_id: str
    at: Micros  # when the request came that submitted it
    caller: str = ""  # the caller's `traceparent`; empty: the trace begins with this request

    def place(self) -> keys.Place:
        return keys.Place(keys.pending_trace(self.run_id), expires_at=(self.at + KEPT) // SECOND)


@dataclass(frozen=True)
class Span:
    name: str
    context: TraceContext
    parent: TraceContext | None
    start: Micros
    end: Micros
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)
    kind: str = "internal"  # or client, or server
    error: str = ""  # why it failed

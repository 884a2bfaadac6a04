"""Audit logs of the embedded server: every event, as chained lines (`domain/audit_chain`), to wherever one wants them.

Each destination has a chain of its own and says itself where it ends, so nothing is written twice or left out by a
restart. The feed keeps the events that aren't in all of them yet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from chalicelib.domain.audit_chain import Head, line_of
from chalicelib.domain.events import Event
from chalicelib.engine.ports import Feed
from chalicelib.errors import DstackError
from chalicelib.runtime.audit_targets import AuditTargets
from chalicelib.runtime.ticker import Ticker
from chalicelib.store.history import events_in

log = logging.getLogger(__name__)

BATCH = 200  # events that are written at once
S3_EVERY = 60.0  # seconds between two objects


class Sink(Protocol):
    """Where the lines go."""

    every: float  # seconds between two looks for new events

    def end(self) -> Head:
        """The last line that is there. Raises Refused if what is there is no audit log."""

    def append(self, lines: Sequence[bytes], head: Head) -> None:
        """Write all these lines, or none. `head`: the last of them."""


class AuditLog:
    def __init__(self, sink: Sink, feed: Feed) -> None:
        self.every, self._sink, self._feed = sink.every, sink, feed
        self._head, self._unsure = sink.end(), False
        self._writing = Lock()

    @property
    def place(self) -> int:
        """The position in the feed up to which everything is written."""
        return self._head.place

    def write(self) -> None:
        """Append what has happened since the last time."""
        with self._writing:
            if self._unsure:  # the last try failed, but may have come through
                self._head, self._unsure = self._sink.end(), False
            while entries := self._feed.feed_after(self._head.place, BATCH):
                head, lines = self._head, []
                for place, record in entries:
                    *first, last = [(head.place, event) for event in events_in(record)]
                    for at, event in (*first, (place, last[1])):
                        line, head = line_of(head, at, _json(event))
                        lines.append(line)
                self._unsure = True
                self._sink.append(lines, head)
                self._head, self._unsure = head, False


def _json(event: Event) -> dict[str, Any]:
    return {**event.model_dump(mode="json", exclude_defaults=True, exclude={"version"}), "message": event.message}


class AuditLogs:
    """All of a server's, each written on a thread of its own, so that a slow one holds up no other."""

    def __init__(self, logs: Iterable[AuditLog]) -> None:
        self._logs = list(logs)
        self._tickers = [Ticker(each.every, each.write, at_once=True) for each in self._logs]

    def settled(self, place: int) -> int:
        """The position in the feed up to which nobody needs it, if others need it from `place` on."""
        return min([place, *(each.place for each in self._logs)])

    def start(self) -> None:
        for ticker in self._tickers:
            ticker.start()

    def close(self) -> None:
        for ticker, each in zip(self._tickers, self._logs, strict=True):
            ticker.stop()
            try:
                each.write()
            except DstackError as error:
                log.warning("the last events aren't in the audit log yet, and come with the next start: %s", error)


def logs_of(file: Path | None, targets: AuditTargets, folder: Path, feed: Feed) -> Iterator[AuditLog]:
    from chalicelib.runtime.audit_file import FileSink
    from chalicelib.runtime.audit_s3 import S3Sink
    from chalicelib.runtime.audit_syslog import SyslogSink
    from chalicelib.runtime.s3_client import s3_client

    if file is not None:
        yield AuditLog(FileSink(file, targets.file_bytes), feed)
    if targets.s3 is not None:
        yield AuditLog(S3Sink(*targets.s3, s3_client("Audit logs"), S3_EVERY), feed)
    if targets.syslog is not None:
        yield AuditLog(SyslogSink(targets.syslog, folder), feed)

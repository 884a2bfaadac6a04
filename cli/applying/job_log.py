"""A job's log: over a stream, as it is printed, or page by page where the server carries no streams.

Either way it is read from its beginning or a given moment, and what was already written is skipped: a log only grows,
so nothing is lost or repeated when the connection breaks, and no other cursor is needed.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chalicelib.domain import pages
from chalicelib.errors import DstackError, Refused
from cli.connection import calls
from cli.connection.session import Session
from cli.tables.runs import newest

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies
    from cli.connection.streams import Stream

COMPLETE = 1000  # the code of a stream's end once the job has ended and all of its log was sent
REMAINDER_SECONDS = 10.0  # to wait for more of the log once the job has ended


@dataclass
class LogReader:
    """One job's log, from its beginning or from a given moment."""

    session: Session
    run_name: str
    submission_id: str
    start_time: str | None = None
    diagnose: bool = False
    skip: int = 0  # bytes at its beginning that were already written
    token: str | None = None  # of the current page
    written: int = 0  # bytes of that page already written

    def drain(self) -> bool:
        """Writes everything that is available now; returns whether there was anything."""
        anything = False
        while True:
            pieces, following = self.page()
            data = b"".join(data for _, data in pieces)
            if len(data) > self.written:
                fresh = data[self.written :]
                self.session.terminal.write(fresh[self.skip :])
                self.skip = max(0, self.skip - len(fresh))
                self.written, anything = len(data), True
            if not following or following == self.token:
                return anything
            self.token, self.written = following, 0

    def page(self, *, descending: bool = False) -> tuple[list[tuple[str, bytes]], str | None]:
        """The pieces of the current page with their times, and the token of the next page."""
        body: bodies.PollBody = {
            "run_name": self.run_name,
            "job_submission_id": self.submission_id,
            "start_time": self.start_time,
            "end_time": None,
            "descending": descending,
            "next_token": self.token,
            "limit": pages.RECORDS,
            "diagnose": self.diagnose,
        }
        answer = calls.logs_poll(self.session.client, body)
        pieces = [(entry["timestamp"], _decoded(entry["message"])) for entry in answer["logs"]]
        return pieces, answer["next_token"]


def last_lines(reader: LogReader, count: int) -> tuple[str | None, int]:
    """Where the last `count` lines begin: a moment, and the number of bytes after it."""
    start, newer = reader.start_time, b""
    older: list[bytes] = []  # of the same moment: a log that is read from there contains all of them
    while True:
        pieces, following = reader.page(descending=True)
        for moment, data in pieces:
            if older and moment != start:
                newer, older = b"".join([*older[::-1], newer]), []
                if newer.count(b"\n", 0, -1) >= count:
                    return start, _before_last(newer, count)
            start = moment
            older.append(data)
        if not following or following == reader.token:
            everything = b"".join([*older[::-1], newer])
            return start, _before_last(everything, count)
        reader.token = following


def _before_last(data: bytes, count: int) -> int:
    lines = re.findall(rb"[^\n]*\n|[^\n]+$", data)
    return sum(map(len, lines[: max(len(lines) - count, 0)]))


def _decoded(message: object) -> bytes:
    try:
        return base64.b64decode(message if isinstance(message, str) else "?", validate=True)
    except ValueError:
        raise Refused(
            f"The server sent a log that isn't base64: {str(message)[:40]!r}.", hint="Is there a proxy in between?"
        ) from None


class JobLog:
    """The log of one job of a run, over its submissions."""

    def __init__(
        self, session: Session, run_name: str, since: str | None = None, *, diagnose: bool = False, skip: int = 0
    ) -> None:
        """`skip`: the number of bytes of the first submission's log, from `since` on, that aren't written."""
        self.session, self.run_name, self.since, self.diagnose = session, run_name, since, diagnose
        self._not_wanted = skip
        self.submission = ""
        self._spec: contract.JobSpec | None = None
        self._stream: Stream | None = None
        self._pages: LogReader | None = None
        self._written = 0  # bytes that came over streams or were skipped
        self._skip = 0  # bytes that the current stream repeats
        self._complete = False

    def fileno(self) -> int:
        """A file descriptor, readable when some of the log has arrived; -1 if the log is read by pages."""
        return self._stream.fileno() if self._stream else -1

    def turn_to(self, job: contract.Job) -> bool:
        """Continues with the job's newest submission; returns whether that is a new one."""
        latest = newest(job)
        if latest is None or latest["id"] == self.submission:
            return False
        if self.submission:
            self.drain(ended=True)
        self.submission, self._pages, self._complete = latest["id"], None, False
        self._written, self._not_wanted = self._not_wanted, 0
        self._spec = job["job_spec"]
        if latest["status"] == "running":
            self._open()
        return True

    def write_arrived(self, timeout: float = 0.0) -> bool:
        """Writes what arrives over the stream within `timeout` seconds; returns whether the stream has ended."""
        assert self._stream is not None, "there is one to wait for"
        while (data := self._stream.receive(timeout)) is not None:
            repeated = min(self._skip, len(data))
            self._skip -= repeated
            self._written += len(data) - repeated
            if len(data) > repeated:
                self.session.terminal.write(data[repeated:])
            if not (data and self._stream.pending):
                return False
        self._complete = self._stream.code == COMPLETE
        self._stream.close()
        self._stream = None
        return True

    def drain(self, ended: bool) -> None:
        """Writes all that is available now or, if its job has `ended`, all that is left."""
        if self._stream and ended:
            self._read_remainder(self._stream)
        elif self._stream:
            self.write_arrived()  # also what came with the server's response
        if self._stream or self._complete or not self.submission:
            return
        if self._written and not self._pages and not ended:
            self._open()  # the stream was cut; a new one starts at the beginning
            if self._stream:
                self.write_arrived()
                return
        if self._pages is None:
            self._pages = LogReader(
                self.session, self.run_name, self.submission, self.since, self.diagnose, skip=self._written
            )
        self._pages.drain()

    def _read_remainder(self, stream: Stream) -> None:
        before = None
        while before != (before := (self._written, self._skip)):  # while something arrives
            if self.write_arrived(REMAINDER_SECONDS):
                return
        stream.close()
        self._stream = None

    def _open(self) -> None:
        """Requests a stream; if the server has none, the log is read by pages."""
        if self.diagnose:
            return
        query: bodies.StreamQuery = {
            "target": "logs",
            "replica": self._spec["replica_num"] if self._spec else 0,
            "job": self._spec["job_num"] if self._spec else 0,
            "start_time": self.since,
        }
        try:
            self._stream = self.session.client.stream(self.run_name, query)
        except DstackError:
            return
        self._skip = self._written

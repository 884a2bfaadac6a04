"""A chunk of a job's log, which is stored as one object: its blob, and its range of the stream."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class LogChunk(Noun):
    """Written once, by the process that stores the stream's next byte, and never changed."""

    project_id: str
    job_id: str
    first: int
    last: int  # one past its last byte
    low: Micros  # when its first line was written
    high: Micros  # when its last line was written
    blob: str
    clock_off: Micros = 0  # how far the times in the object are behind

    def place(self) -> keys.Place:
        return keys.Place(keys.log_chunk(self.project_id, self.job_id, self.first))

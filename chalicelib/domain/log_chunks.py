"""A part of a job's log that is stored as one object: where it is, and what of the stream it has."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class LogChunk(Noun):
    """Entered once, by whoever stores the stream's next byte, and never changed."""

    project_id: str
    job_id: str
    first: int
    last: int  # the byte after its last
    low: Micros  # when its first and last line were written
    high: Micros
    blob: str
    clock_off: Micros = 0  # what the times in the object are behind

    def place(self) -> keys.Place:
        return keys.Place(keys.log_chunk(self.project_id, self.job_id, self.first))

"""The last turn of a schedule, so that a schedule that fires twice for a turn does its work once."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class ScheduleTurn(Noun):
    schedule: str
    at: Micros  # when it fired, by the schedule's own clock

    def place(self) -> keys.Place:
        return keys.Place(keys.schedule(self.schedule))

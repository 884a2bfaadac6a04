"""The position of the daily round through the blob store; stored, so that a restart continues there."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class Round(Noun):
    folder: int = 0  # index of the current folder
    after: str = ""  # the last blob of it that was checked
    next_at: Micros = 0  # when the next round begins; 0 while one is under way

    def place(self) -> keys.Place:
        return keys.Place(keys.ROUND)

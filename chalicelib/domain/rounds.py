"""Positions of the rounds through the blob store and through the projects' books; stored, so that a restart continues
there."""

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


class BooksPlace(Noun):
    after: str = ""  # the name of the last project that was visited
    counting: str = ""  # the name of the next one, if a count of its costs was begun
    tries: int = 0  # counts of these that were begun; those before the last outlasted their turn

    def place(self) -> keys.Place:
        return keys.Place(keys.BOOKS)

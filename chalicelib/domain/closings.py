"""The closing of a deleted project: due until nothing of the project runs any more, even if the deletion crashed, and
listed until everything of it is erased (`engine/erase_unused.py`), its own record last."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class Closing(Noun):
    kind: ClassVar[str] = "closing"

    id: str  # the project's
    began_at: Micros
    due_at: Micros | None = None
    erased: bool = False

    def place(self) -> keys.Place:
        listed = keys.by_time(keys.CLOSED if self.erased else keys.CLOSINGS, self.began_at, self.id)
        return keys.Place(keys.closing(self.id), listed, due=keys.due(f"closing/{self.id}", self.due_at))

"""The end of a deleted project: due until nothing of it runs any more, even if the deletion itself crashed."""

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

    def place(self) -> keys.Place:
        return keys.Place(keys.closing(self.id), due=keys.due(f"closing/{self.id}", self.due_at))

"""Backends as projects have them: a type, its settings and its sealed credentials."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


class Configured(Noun):
    """One backend of one project."""

    kind: ClassVar[str] = "backend"

    id: str
    project_id: str
    type: str
    config: str  # JSON, its secrets sealed (see store.sealed_specs)
    from_file: bool = False  # the server's own file has it, and only there it is changed
    changed_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.backend(self.project_id, self.type))


class BackendRoster(Noun):
    """Which backends there are. Each commit that changes a backend writes it too, so one read of this record tells
    whether any has changed. It may still name some that were erased with their project."""

    rows: tuple[tuple[str, str], ...] = ()  # (project, type)

    def place(self) -> keys.Place:
        return keys.Place(keys.ROSTER)

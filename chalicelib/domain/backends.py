"""Backends as projects have them: a type, its settings and its sealed credentials."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun


def account_key(type: str, project_id: str | None) -> str:
    """The stable name of an account, also used in blobs' names. Without a project: an account that serves every
    project."""
    return f"{type}-{project_id or 'all'}"


def type_and_project(account: str) -> tuple[str, str]:
    """The inverse of `account_key`. No type has a dash in its name."""
    type, _, project_id = account.partition("-")
    return type, project_id


class Configured(Noun):
    """One backend of one project."""

    kind: ClassVar[str] = "backend"

    id: str
    project_id: str
    type: str
    config: str  # JSON, its secrets sealed (see store.sealed_specs)
    from_file: bool = False  # it comes from the server's own file, and can be changed only there
    changed_at: Micros

    @property
    def account(self) -> str:
        return account_key(self.type, self.project_id)

    def place(self) -> keys.Place:
        return keys.Place(keys.backend(self.project_id, self.type))


class BackendRoster(Noun):
    """The list of all backends. Each commit that changes a backend writes it, so one read of this record shows whether
    any has changed. It may still list some that were erased with their project."""

    rows: tuple[tuple[str, str], ...] = ()  # (project, type)

    def place(self) -> keys.Place:
        return keys.Place(keys.ROSTER)

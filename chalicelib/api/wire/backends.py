"""Backends on the wire. Their secrets are always hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.backends import Configured
from chalicelib.domain.instants import iso
from chalicelib.engine.ports import Age
from chalicelib.usecases.operator.backends import shown

if TYPE_CHECKING:
    from chalicelib import contract


def backend_json(backend: Configured, age: Age | None) -> contract.Backend:
    """A row of the list, a call of our own. `age`: that of the backend's offers, if they were ever fetched."""
    config = {name: value for name, value in shown(backend).items() if name != "creds"}
    taken_at = None if age is None or age.taken_at is None else iso(age.taken_at)
    return {
        "name": backend.type,
        "source": "file" if backend.from_file else "api",
        "config": config,
        "changed_at": iso(backend.changed_at),
        "offers_taken_at": taken_at,
        "offers_error": "" if age is None else age.error,
    }

"""The upgrade of a server: what it finds in its folder, what changes there, and the way back.

A release reads what earlier ones wrote. What it stores otherwise has a number, of the store's file or of its records
(`engine/record_upgrades.py`), and a release refuses a folder in which a number is higher than its own: it would drop
what it doesn't know.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.engine.record_upgrades import UpgradeProgress
from chalicelib.errors import DataTooNew
from chalicelib.runtime.backup import DATABASE, back_up, program
from chalicelib.runtime.drill import Drilled, drill
from chalicelib.store import nouns
from chalicelib.store.backups import Backups, Moment
from chalicelib.store.port import Store
from chalicelib.store.record_form import FORM, form_of, newest_form
from chalicelib.store.sqlite import SCHEMA, WAY_BACK
from chalicelib.store.sqlite_snapshot import SqliteSnapshot, checked_format


@dataclass(frozen=True)
class Upgrade:
    backup: Moment
    rehearsal: Drilled  # with this release, of that backup
    changes: list[str]  # what the next start does to the folder


def check_records(store: Store) -> None:
    """Raises DataTooNew for records that a newer release has written anew."""
    _check(form_of(store))


def _check(newest: int) -> None:
    if newest > FORM:
        raise DataTooNew(
            f"The records here are of a newer version of this program: their form is {newest}, this version "
            f"({program()}) knows up to {FORM}.",
            hint=WAY_BACK,
        )


def prepare(folder: Path, backups: Backups, now: Micros) -> Upgrade:
    """Back the folder up, and rehearse with this release on a copy. Raises DataTooNew for a folder of a newer one."""
    changes = changes_of(folder)
    made = back_up(folder, backups, lambda: now)
    return Upgrade(made, drill(backups, now), changes)


def changes_of(folder: Path) -> list[str]:
    found, changes = checked_format(folder / DATABASE), []
    if found < SCHEMA:
        changes.append(f"plane.db is rewritten from format {found} to {SCHEMA}")
    with SqliteSnapshot(folder / DATABASE) as snapshot:
        renewals = {r.key: r for r in snapshot.records() if r.key.pk == keys.renewal(0).pk}
    _check(newest_form(renewals))
    at = renewals.get(keys.renewal(UpgradeProgress.form))
    if at is None or not nouns.read(UpgradeProgress, at).done:
        changes.append(f"records are brought to form {UpgradeProgress.form}, a few at a time while the server runs")
    return changes

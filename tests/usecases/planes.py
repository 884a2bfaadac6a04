"""A real plane in a temporary folder: SQLite, files, a real seal; the clock is set by hand and ids count up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.log_files import FileLogs
from chalicelib.store.seal import Sealer
from chalicelib.store.sqlite import SqliteStore
from chalicelib.usecases.context import Limits, Plane

NOW: Micros = 1_790_000_000 * SECOND


class Clock:
    def __init__(self, at: Micros = NOW) -> None:
        self.at = at

    def now(self) -> Micros:
        return self.at

    def pass_(self, seconds: float) -> None:
        self.at += round(seconds * SECOND)


class NoCatalog:
    def book(self, project_id: str) -> Any:
        raise AssertionError("nothing here asks for offers")


@dataclass
class World:
    plane: Plane
    clock: Clock
    folder: Path
    woken: list[str] = field(default_factory=list)
    rung: list[str] = field(default_factory=list)

    @classmethod
    def at(cls, folder: Path, **changes: Any) -> World:
        clock, count = Clock(), itertools.count(1)
        woken: list[str] = []
        rung: list[str] = []

        def wake(units: Iterable[str]) -> None:
            woken.extend(units)

        def ring(instances: Iterable[str]) -> None:
            rung.extend(instances)

        plane = Plane(
            store=SqliteStore(folder / "plane.db", now=lambda: clock.at / SECOND),
            blobs=FileBlobs(folder / "blobs"),
            logs=FileLogs(folder / "logs"),
            seal=Sealer(b"k" * 32),
            catalog=NoCatalog(),
            clock=clock,
            wake=wake,
            news=ring,
            random_id=lambda: derive("test", "id", next(count)),
            random_token=lambda: f"token-{next(count):032d}",
            install_id="install",
            install_key=b"i" * 32,
            facts={},
            limits=Limits(),
        )
        return cls(replace(plane, **changes), clock, folder, woken, rung)

    def take_woken(self) -> set[str]:
        found = set(self.woken)
        self.woken.clear()
        return found

"""A plane by itself: its clock is set by hand, its ids count up, and its wake-ups and notices are kept in lists."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from chalicelib.backends.accounts import Accounts
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.hosts.join_script import JoinScript
from chalicelib.runtime.streams import StreamBroker
from chalicelib.store import nouns
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.log_files import FileLogs
from chalicelib.store.seal import Sealer
from chalicelib.store.sqlite import SqliteStore
from chalicelib.usecases.context import Plane
from chalicelib.usecases.pace import PER_CALL
from tests.harness import contract
from tests.world.time import Clock

EVERYBODY = "everybody"  # rings when rights change
DATABASE = "plane.db"


contract.watch()

Known = TypeVar("Known", bound=Noun)


class NoOffers:
    def book(self, project_id: str) -> Any:
        raise AssertionError("nothing here asks for offers")

    ages = book


@cache
def _empty() -> bytes:
    """A new database, made once: copies of it are there sooner."""
    with tempfile.TemporaryDirectory() as folder:
        SqliteStore(Path(folder) / DATABASE).close()
        return (Path(folder) / DATABASE).read_bytes()


def write_database(folder: Path, content: bytes) -> None:
    (folder / DATABASE).touch(0o600)
    (folder / DATABASE).write_bytes(content)


@dataclass
class World:
    """Also serves as a clock."""

    plane: Plane
    clock: Clock
    folder: Path = Path()
    woken: list[str] = field(default_factory=list)
    rung: list[str] = field(default_factory=list)

    @classmethod
    def in_folder(cls, folder: Path, **ports: Any) -> Self:
        """With SQLite and files."""
        clock = Clock()
        if not (folder / DATABASE).exists():
            write_database(folder, _empty())
        store = SqliteStore(folder / DATABASE, now=clock.seconds)
        defaults = {"store": store, "blobs": FileBlobs(folder / "blobs"), "logs": FileLogs(folder / "logs")}
        return cls._over(clock, folder, **{**defaults, **ports})

    @classmethod
    def _over(cls, clock: Clock, folder: Path = Path(), **ports: Any) -> Self:
        count = itertools.count(1)
        woken: list[str] = []
        rung: list[str] = []
        ids, tokens = lambda: derive("test", "id", next(count)), lambda: f"token-{next(count):032d}"
        filled: dict[str, Any] = {
            "seal": Sealer(b"k" * 32),
            "catalog": NoOffers(),
            "clock": clock,
            "wake": woken.extend,
            "notify_agents": rung.extend,
            "rights": lambda: rung.append(EVERYBODY),
            "random_id": ids,
            "random_token": tokens,
            "install_id": "install",
            "install_key": b"i" * 32,
            "people_url": "https://plane.example",
            "backends": Accounts(),
            "pace": PER_CALL,
            "streams": StreamBroker(ids, tokens, clock=lambda: clock.now() / SECOND),
        }
        ports = {**filled, **ports}
        if "joining" not in ports:
            url, digest = "https://plane.example", "d" * 64
            ports["joining"] = JoinScript(ports["store"], clock, ports["install_id"], url, lambda: digest)
        return cls(Plane(**ports), clock, folder, woken, rung)

    @property
    def store(self) -> Any:
        return self.plane.store

    @property
    def at(self) -> Micros:
        return self.clock.at

    @at.setter
    def at(self, at: Micros) -> None:
        self.clock.at = at

    def now(self) -> Micros:
        return self.clock.now()

    def take_woken(self) -> set[str]:
        found = set(self.woken)
        self.woken.clear()
        return found

    def save(self, *changed: Any) -> None:
        self.store.commit([nouns.put(noun) for noun in changed])

    def again(self, noun: Known) -> Known:
        """The noun as it is now."""
        found = nouns.find(self.store, type(noun), nouns.key_of(noun))
        assert found is not None
        return found

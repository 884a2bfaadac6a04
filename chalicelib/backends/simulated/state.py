"""The simulated cloud's state: in memory, or in a folder of files that outlives the server."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, Protocol

import orjson

Body = dict[str, Any]


class ResourceStore(Protocol):
    def all(self) -> list[Body]: ...

    def get(self, name: str) -> Body | None: ...

    def put(self, name: str, body: Body) -> None:
        """Stores the resource. It is saved completely once this returns."""

    def drop(self, name: str) -> None: ...


class MemoryResources:
    def __init__(self) -> None:
        self._bodies: dict[str, Body] = {}

    def all(self) -> list[Body]:
        return [copy.copy(body) for body in self._bodies.values()]

    def get(self, name: str) -> Body | None:
        return copy.copy(self._bodies.get(name))

    def put(self, name: str, body: Body) -> None:
        self._bodies[name] = copy.copy(body)

    def drop(self, name: str) -> None:
        self._bodies.pop(name, None)


class FolderResources:
    """One JSON file per resource."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def all(self) -> list[Body]:
        found = (self.get(path.stem) for path in sorted(self._folder.glob("*.json")))
        return [body for body in found if body is not None]

    def get(self, name: str) -> Body | None:
        try:
            body: Body = orjson.loads((self._folder / f"{name}.json").read_bytes())
        except FileNotFoundError:
            return None
        return body

    def put(self, name: str, body: Body) -> None:
        draft = self._folder / f"{name}.draft"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(orjson.dumps(body))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / f"{name}.json")

    def drop(self, name: str) -> None:
        (self._folder / f"{name}.json").unlink(missing_ok=True)

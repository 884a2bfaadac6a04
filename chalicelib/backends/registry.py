"""Which backends there are. One row each; nothing of a provider is imported before it is asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from chalicelib.backends.spi import Backend
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import NotSupported, Refused


@dataclass(frozen=True)
class Entry:
    path: str  # module:class
    extra: str = ""  # the package extra that brings its SDK


# Alphabetical, by the wire's backend name.
BACKENDS: Mapping[str, Entry] = {
    "dstack": Entry("chalicelib.backends.fake:FakeCloud"),
}

if list(BACKENDS) != sorted(BACKENDS):
    raise AssertionError("the table of backends isn't sorted")


def backend_class(name: str, table: Mapping[str, Entry] = BACKENDS) -> Any:
    """The backend's class. Raises NotSupported for a name that isn't known, Refused where its SDK isn't installed."""
    entry = table.get(name)
    if entry is None:
        raise NotSupported(f"There is no backend {name!r}.", hint=f"There are {', '.join(table)}.")
    module, _, attribute = entry.path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        hint = f"pip install 'dstack-serverless[{entry.extra}]'" if entry.extra else "Reinstall the program."
        raise Refused(
            f"The backend {name} needs the Python package {error.name}, which isn't installed.", hint=hint
        ) from error


def simulated(folder: Path, server_url: str, program: Path) -> dict[str, Backend]:
    """The scripted cloud whose machines are local processes; it keeps its state, and its script, in `folder`."""
    from chalicelib.backends.fake_parts.launch import LocalLauncher
    from chalicelib.backends.fake_parts.script import Script, ScriptFile
    from chalicelib.backends.fake_parts.shelf import FolderShelf

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    script = ScriptFile(folder / "script.json", Script(boot=SECOND // 2, end=SECOND // 2))
    launcher = LocalLauncher(folder / "machines", server_url, program)
    cloud = backend_class("dstack")(
        _now, shelf=FolderShelf(folder / "resources"), launcher=launcher, script=script.current
    )
    launcher.moved()
    cloud.resume()
    return {cloud.facts.name: cloud}


def _now() -> Micros:
    return time.time_ns() // 1000

"""The text of a backend's module with a change in it, or with one in the table that it reads: `errors.toml` is that of
`errors.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ".toml"


def changed(module: str, file: str, changes: Iterable[tuple[str, str]], folder: Path) -> str:
    """`file`: the module's, or its table's, whose changed text is written to the folder. Raises ValueError if what is
    to be changed isn't there once."""
    place = ROOT / module.replace(".", "/")
    source = place.with_suffix(".py").read_text(encoding="utf-8")
    if not file.endswith(TABLE):
        return _replaced(file, source, changes)
    table = folder / Path(file).name
    text = place.with_suffix(TABLE).read_text(encoding="utf-8")
    table.write_text(_replaced(file, text, changes), encoding="utf-8")
    return _replaced(module, source, [(f'"{place.parent.name}/{table.name}"', repr(str(table)))])


def _replaced(file: str, text: str, changes: Iterable[tuple[str, str]]) -> str:
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{file} has this {text.count(old)} times, and should have it once: {old!r}")
        text = text.replace(old, new)
    return text

"""A name stands for one thing: whoever searches for a class finds one, and two that are alike have names that say how
they differ. Only classes within functions and other classes are free, because nobody meets them elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import chalicelib

ROOT = Path(__file__).resolve().parents[1]
OURS = ("chalicelib", "cli", "functions", "infra")


def doubled(sources: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for path, source in sources:
        for name in re.findall(r"^class (\w+)", source, re.MULTILINE):
            places.setdefault(name, []).append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_two_classes_have_one_name() -> None:
    found = [(str(path.relative_to(ROOT)), path.read_text()) for top in OURS for path in (ROOT / top).rglob("*.py")]
    assert len(found) > 300, "not all of the code was read"
    assert doubled(found) == {}, "say with their names how they differ"


def test_the_map_names_every_package() -> None:
    named = set(re.findall(r"^`(\w+)`", chalicelib.__doc__ or "", re.MULTILINE))
    assert named == {path.parent.name for path in (ROOT / "chalicelib").glob("*/__init__.py")}


def test_a_second_class_of_a_name_is_found() -> None:
    first, second = "class Reply:\n    class Meta: ...", "def f(): ...\n\n\nclass Meta: ...\n\n\nclass Reply(Meta): ..."
    assert doubled([("a.py", first), ("b.py", second)]) == {"Reply": ["a.py", "b.py"]}

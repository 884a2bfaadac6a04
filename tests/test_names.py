"""Within a package a class name stands for one thing: a search for it finds one class. Classes inside functions and
other classes are free, because nobody meets them elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import chalicelib

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("chalicelib", "cli", "dstack_serverless", "functions", "infra")


def package(path: str) -> str:
    """`chalicelib/planning` for a file below `chalicelib`, else the top folder."""
    top, *inner = Path(path).parts
    return f"{top}/{inner[0]}" if top == "chalicelib" else top


def duplicates(sources: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """By package and name: the files that define a class of a name that another file of the package defines, too."""
    places: dict[tuple[str, str], list[str]] = {}
    for path, source in sources:
        for name in re.findall(r"^class (\w+)", source, re.MULTILINE):
            places.setdefault((package(path), name), []).append(path)
    return {key: paths for key, paths in places.items() if len(paths) > 1}


@pytest.mark.slow
def test_no_two_classes_of_a_package_share_a_name() -> None:
    found = [(str(path.relative_to(ROOT)), path.read_text()) for top in PRODUCT for path in (ROOT / top).rglob("*.py")]
    assert len(found) > 300, "not all of the code was read"
    assert duplicates(found) == {}, "give them names that tell them apart"


def test_the_map_names_every_package() -> None:
    named = set(re.findall(r"^`(\w+)`", chalicelib.__doc__ or "", re.MULTILINE))
    assert named == {path.parent.name for path in (ROOT / "chalicelib").glob("*/__init__.py")}


def test_a_second_class_of_a_name_is_found() -> None:
    first, second = "class Reply:\n    class Meta: ...", "def f(): ...\n\n\nclass Meta: ...\n\n\nclass Reply(Meta): ..."
    assert duplicates([("cli/a.py", first), ("cli/runs/b.py", second)]) == {
        ("cli", "Reply"): ["cli/a.py", "cli/runs/b.py"]
    }
    assert duplicates([("chalicelib/api/a.py", first), ("chalicelib/agent/b.py", second)]) == {}

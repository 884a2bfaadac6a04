"""The arrows between the agent's modules, those of types and of modules that are imported later included.

The import contracts (pyproject.toml) leave out both: they know the layers of rooms, and this knows the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import chalicelib.agent

FOLDER = Path(chalicelib.agent.__file__).parent
LAYERS = (("program",), ("gateway",), ("streams",), ("replicas", "sessions", "volumes"), ("runtimes",), ("kernel",))
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def module(path: Path) -> str:
    return ".".join(path.relative_to(FOLDER).with_suffix("").parts)


def imported(source: str, package: list[str], known: set[str]) -> Iterator[str]:
    """Modules of the agent that this one of `package` imports in any way."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            names = [".".join(filter(None, [*base, alias.name])) for alias in node.names]
            yield from {name if name in known else name.rpartition(".")[0] for name in names} & known
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LazyModule":
            name = str(ast.literal_eval(node.args[0]))
            if name.startswith("."):
                assert name[1:] in known, f"there is no module {name}"
                yield name[1:]


@cache
def graph() -> dict[str, set[str]]:
    paths = {module(path): path for path in FOLDER.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")}
    return {name: set(imported(path.read_text(), name.split(".")[:-1], set(paths))) for name, path in paths.items()}


def circles(arrows: Mapping[str, set[str]]) -> set[str]:
    """The modules that are in a circle, or that only lead to one another from one."""
    left = {name: set(others) for name, others in arrows.items()}
    while free := {name for name, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in free}
    return set(left)


def upward(arrows: Mapping[str, set[str]]) -> list[str]:
    found = []
    for name, others in arrows.items():
        room = name.split(".")[0]
        for other in others:
            there = other.split(".")[0]
            if there != room and LEVEL[there] <= LEVEL[room]:
                found.append(f"{name} -> {other}")
    return sorted(found)


@pytest.mark.slow
def test_no_module_is_in_a_circle_of_imports() -> None:
    arrows = graph()
    assert len(arrows) > 80 and arrows["runtimes.process"] >= {"runtimes.accounts", "kernel.tasks"}, "lazy ones, too"
    assert circles(arrows) == set()


@pytest.mark.slow
def test_rooms_import_downwards() -> None:
    assert upward(graph()) == []


def test_a_circle_and_an_arrow_upwards_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == {"a", "b", "c"}
    assert upward({"kernel.x": {"program.y"}, "volumes.a": {"volumes.b", "sessions.c", "kernel.d"}}) == [
        "kernel.x -> program.y",
        "volumes.a -> sessions.c",
    ]
    known = {"kernel.tasks", "volumes.disks", "volumes.holds"}
    source = 'from . import holds\nif x:\n    from .disks import B\nLazyModule(".kernel.tasks")'
    assert set(imported(source, ["volumes"], known)) == known

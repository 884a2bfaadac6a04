"""There is no circle of imports: not of those at the top of a file, of lazy ones in functions, or of those for types.
Import contracts (`pyproject.toml`) say less: they leave out the last, and see packages and rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("chalicelib", "cli", "dstack_serverless", "functions", "infra")


def sources() -> dict[str, str]:
    """The text of every module, by its dotted name; of a package, under the name of its `__init__`."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in paths}


def imports(module: str, text: str) -> Iterator[tuple[str, str]]:
    """Each `from A import B` as (A, B), and each `import A` as (A, ""). Wherever it stands."""
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = resolve_name("." * node.level + (node.module or ""), module.rpartition(".")[0])
            yield from ((named, alias.name) for alias in node.names)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Those that stand in others, too. Of all nodes of the tree they are a tenth."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, part, ())


def graph(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Which modules each one imports. `from A import B` is about the module A.B if there is one, otherwise about A."""
    found: dict[str, set[str]] = {}
    for name, text in modules.items():
        wanted = {
            next((each for each in (f"{a}.{b}", f"{a}.{b}.__init__", a, f"{a}.__init__") if each in modules), "")
            for a, b in imports(name, text)
        }
        found[name] = wanted - {"", name}
    return found


def circle(modules: Mapping[str, str]) -> list[str]:
    """Modules of which each is imported by the next, and the first again at the end; empty if there is no circle."""
    try:
        TopologicalSorter(graph(modules)).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


@pytest.mark.slow
def test_no_imports_go_in_a_circle() -> None:
    found = circle(sources())
    assert not found, "a circle of imports: " + " <- ".join(found)


@pytest.mark.parametrize(
    "back",
    [
        "from a import one",
        "from a.one import NAME",
        "import a.one",
        "from .one import NAME",
        "from . import one",
        "if TYPE_CHECKING:\n    from a.one import NAME",
        "def late():\n    from a import one",
    ],
)
def test_a_circle_is_found_and_named(back: str) -> None:
    modules = {"a.__init__": "", "a.one": "from a.two import x", "a.two": "import a.three", "a.three": back}
    assert set(circle(modules)) == {"a.one", "a.two", "a.three"}
    assert circle({**modules, "a.three": "from a.other import NAME"}) == []


def test_a_package_and_a_module_in_it_make_a_circle_too() -> None:
    assert set(circle({"a.__init__": "from a.one import x", "a.one": "from a import NAME"})) == {"a.__init__", "a.one"}
    assert circle({"a.__init__": "", "a.one": "from a import two", "a.two": "from a import NAME"}) == []

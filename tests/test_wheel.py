"""How the build moves modules into one package: names in imports, wherever they stand, and nothing else."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = runpy.run_path(str(ROOT / ".ci" / "wheel.py"))
moved: Callable[[bytes, str], bytes] = BUILD["moved"]


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "import os; {}",
        "{}; {}",
        "é = 'é'; {}",
        "try:\n    x\nexcept E:\n    {}\nfinally:\n    {}",
        "match x:\n  case 1:\n    {}",
        "def f():\n    if x: pass\n    else: {}",
        "class A:\n    with x:\n        async def f(): {}",
    ],
)
@pytest.mark.parametrize(
    ("written", "installed"),
    [
        ("from chalicelib import errors", "from dstack_serverless.plane import errors"),
        ("from cli.screen import render", "from dstack_serverless.cli.screen import render"),
        ("from  cli import (a,\n  b)", "from  dstack_serverless.cli import (a,\n  b)"),
        ("import chalicelib.errors as e", "import dstack_serverless.plane.errors as e"),
        (
            "import os, cli.main as é, cli as c",
            "import os, dstack_serverless.cli.main as é, dstack_serverless.cli as c",
        ),
    ],
)
def test_imports_get_the_new_names(around: str, written: str, installed: str) -> None:
    source = around.replace("{}", written)
    assert moved(source.encode(), "a.py").decode() == around.replace("{}", installed)


@pytest.mark.parametrize(
    "source",
    [
        "'''How `cli.main` works.'''",
        "x = 1  # as in cli.main",
        "from .cli import main",
        "from clients import main",
        "import click, chalice.app",
        "cli.main()",
        "text = 'a file in cli/main.py, from cli import main'",
        "class A:\n    '''Of `chalicelib.errors`.'''\r\n",
    ],
)
def test_all_else_stays(source: str) -> None:
    assert moved(source.encode(), "a.py").decode() == source


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("\nimport cli.main", "a.py, line 2: can't be moved .* `from … import …` instead of `import cli.main`"),
        ("import chalicelib", "instead of `import chalicelib`"),
        ("from \\\n  cli import main", "on one line"),
        ("import_module('cli.main')", "line 1: .*this text names a module: make it from `__package__`"),
        ("x = 1\nname = f'chalicelib.{x}.y'", "line 2"),
        ("name = 'cli.' + x", "line 1"),
        ("x = 1\nname = f'{chalicelib}.{x}.y'", None),
        ("x = 1\nname = f'chalicelib.api.{x}'", "line 2"),
        ("run(['python', '-c', 'import os, cli.main'])", "names a module"),
    ],
)
def test_what_would_break_is_refused(source: str, why: str | None) -> None:
    if why is None:  # a name that is only half there can't be known
        assert moved(source.encode(), "a.py").decode() == source
        return
    with pytest.raises(BUILD["Unmovable"], match=why):
        moved(source.encode(), "a.py")


def test_what_is_left_out_or_compressed_exists() -> None:
    of_agent = {f"{BUILD['AGENT']}/{path}" for path in BUILD["IMPORTED"]}
    named = BUILD["LEFT_OUT"] | BUILD["COMPRESSED"] | of_agent
    assert [path for path in named if not (ROOT / path).is_file()] == []

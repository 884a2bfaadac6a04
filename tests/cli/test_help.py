"""Every command's face: help with examples that parse, --json or the reason why not, and imports that stay light."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from typing import Any

import pytest
import typer

from cli.main import GROUPS, HIDDEN, app
from cli.reference import leaves
from tests.cli.conftest import Dstack
from tests.harness.rows import each

ROOT = typer.main.get_command(app)
SHELL_WORDS = ("|", ">", "<")


LEAVES = dict(leaves())


@each("path", LEAVES, ids=" ".join)
@pytest.mark.slow
def test_help_shows_two_examples_that_parse(path: tuple[str, ...]) -> None:
    epilog = LEAVES[path].epilog or ""
    examples = [line.strip() for line in epilog.splitlines() if "dstack " in line]
    assert len(examples) >= 2, f"{path} shows {len(examples)} examples"
    for example in examples:
        args = shlex.split(example.removeprefix("source <(").rstrip(")"))
        args = args[: next((at for at, arg in enumerate(args) if arg in SHELL_WORDS), len(args))]
        assert args[0] == "dstack"
        context = parse(args[1:])
        assert context.command_path.split()[1 : 1 + len(path)] == list(path) or path[0] == "destroy"


GROUPS_OF_MORE = [name for name in (*GROUPS, *HIDDEN) if getattr(ROOT.get_command(None, name), "commands", None)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", GROUPS_OF_MORE)
def test_help_of_a_group_shows_examples_of_its_commands(name: str, bare: Dstack) -> None:
    shown = bare(name, "--help").out.partition("Examples:")[2].splitlines()
    examples = [line.strip() for line in shown if line.strip()]
    assert len(examples) >= 2 and all(f"{line} ".startswith(f"dstack {name} ") for line in examples), shown
    assert {line for path in LEAVES for line in map(str.strip, (LEAVES[path].epilog or "").splitlines())} >= {*examples}


def parse(args: list[str]) -> typer.Context:
    """The context of the command that the words name; raises where they are no valid command line."""
    context: Any = ROOT.make_context("dstack", list(args))
    while getattr(context, "_protected_args", None):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context


@each("path", LEAVES, ids=" ".join)
def test_json_or_why_not(path: tuple[str, ...]) -> None:
    command = LEAVES[path]
    has_flag = any("--json" in param.opts for param in command.params)
    assert has_flag or "No --json" in (command.help or ""), f"{path} neither has --json nor says why"


@each("path", LEAVES, ids=" ".join)
@pytest.mark.slow
def test_every_flag_is_explained_and_help_fits(path: tuple[str, ...], bare: Dstack) -> None:
    for param in LEAVES[path].params:
        assert getattr(param, "help", None), f"{path}: {param.name} has no help"
    ended = bare(*path, "--help")
    assert ended.code == 0 and all(len(line) <= 100 for line in ended.out.splitlines())


@each("name", GROUPS)
def test_the_list_of_commands_says_what_they_say(name: str) -> None:
    help_text = ROOT.get_command(None, name).help.splitlines()[0]  # type: ignore[attr-defined]
    assert help_text == GROUPS[name][1]


@cache
def modules_after(*args: str) -> set[str]:
    code = (
        "import sys; from cli.main import invoke; from cli.screen.terminal import Terminal\n"
        f"invoke({list(args)!r}, Terminal(env={{}}))\n"
        "print('|'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stderr.strip().splitlines()[-1].split("|"))


LIGHT = ("chalicelib.domain", "chalicelib.domain.pages")  # three numbers
HEAVY = ("pydantic", "chalicelib.configuration", "chalicelib.domain", "chalicelib.api", "chalice.", "boto3", "rich")


@pytest.mark.slow
@pytest.mark.parametrize("args", [("--help",), ("ps",), ("ps", "--help"), ("fleet",), ("logs", "x"), ("stop", "x")])
def test_common_commands_import_little(args: tuple[str, ...]) -> None:
    loaded = modules_after(*args)
    assert not [name for name in loaded if name.startswith(HEAVY) and name not in LIGHT]
    assert ("cli.commands.ps" in loaded) == (args[0] == "ps")


@pytest.mark.slow
def test_the_root_help_imports_no_command() -> None:
    assert not [name for name in modules_after("--help") if name.startswith(("cli.commands", "yaml", "http.client"))]


FLAG_VALUES = {  # what the flags say that not every type takes
    "--port": "80",
    "--max-duration": "1h",
    "--fleet": "x",
    "--repo": ".",
    "--git-identity": "key",
    "--max-offers": "5",
    "--profile": "p",
    "--cpu": "2..",
    "--memory": "8GB..",
    "--spot-policy": "spot",
    "--region": "eu",
    "--idle-duration": "1h",
}
FILES = {
    "fleet": "type: fleet\nname: f\nnodes: 0..1\n",
    "volume": "type: volume\nname: v\nbackend: aws\nregion: eu\nsize: 1GB\n",
    "gateway": "type: gateway\nname: g\nbackend: aws\nregion: eu\ndomain: example.com\n",
}


@pytest.mark.parametrize("kind", ["fleet", "volume", "gateway"])
@pytest.mark.parametrize("flag", FLAG_VALUES)
def test_help_of_a_type_shows_the_flags_that_it_takes(kind: str, flag: str, dstack: Dstack) -> None:
    shown = flag in dstack("apply", "-h", kind).out
    (dstack.terminal.cwd / "x.dstack.yml").write_text(FILES[kind])
    ended = dstack("apply", "-y", "-f", "x.dstack.yml", flag, FLAG_VALUES[flag])
    refused = re.search(r"doesn't apply to a|has no `", ended.err) is not None
    assert shown is not refused, ended


def test_help_of_no_type_is_refused(bare: Dstack) -> None:
    assert bare("apply", "-h", "task").out == bare("apply", "-h").out
    ended = bare("apply", "-h", "fleets")
    assert ended.code == 2 and "the types are dev-environment, task" in ended.err

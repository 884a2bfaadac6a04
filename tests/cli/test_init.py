"""`dstack init`, and the skill that it writes for coding agents."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cli.commands.init import AGENTS_LOOK_IN, SKILL
from cli.main import app
from tests.cli.conftest import Dstack

TEXT = SKILL.read_text()


def copies(dstack: Dstack) -> list[Path]:
    return [dstack.terminal.cwd / folder / "SKILL.md" for folder in AGENTS_LOOK_IN]


def test_the_skill_is_written_where_agents_look_and_nothing_else(dstack: Dstack) -> None:
    ended = dstack("init", "--skill")
    assert ended.code == 0
    assert [copy.read_text() for copy in copies(dstack)] == [TEXT, TEXT]
    assert ended.out.splitlines() == [f"Wrote {folder.as_posix()}/SKILL.md." for folder in AGENTS_LOOK_IN]
    assert not (dstack.terminal.cwd / ".dstack.yml").exists()
    assert dstack("init", "--skill").code == 0, "the same text again"


def test_a_copy_that_was_edited_is_replaced_only_by_force(dstack: Dstack) -> None:
    dstack("init", "--skill")
    first, second = copies(dstack)
    second.write_text("ours\n")
    first.unlink()
    refused = dstack("init", "--skill")
    assert refused.code == 1 and ".claude/skills/dstack/SKILL.md" in refused.err and "--force" in refused.err
    assert second.read_text() == "ours\n" and not first.exists(), "nothing was written"
    assert dstack("init", "--skill", "--force").code == 0
    assert first.read_text() == second.read_text() == TEXT


@pytest.mark.parametrize("flags", [("--force",), ("--skill", "-P", ".")])
def test_flags_that_mean_nothing_together_are_refused(dstack: Dstack, flags: tuple[str, ...]) -> None:
    assert dstack("init", *flags).code == 2


def test_the_skill_has_the_head_that_agents_read() -> None:
    _, head, _ = TEXT.split("---\n", 2)
    found = yaml.safe_load(head)
    assert set(found) == {"name", "description"}
    assert found["name"] == SKILL.parent.name == "dstack"
    assert 50 < len(found["description"]) <= 1024
    assert len(TEXT.splitlines()) < 500


def test_every_command_that_the_skill_names_exists() -> None:
    """Those in blocks are run with the guides; these stand in sentences and in the table."""
    named = re.findall(r"`dstack ([^`]+)`", TEXT)
    table = TEXT.partition("| | commands")[2].partition("\n\n")[0]
    named += [each for row in table.splitlines()[2:] for each in re.findall(r"`([^`]+)`", row.split("|")[2])]
    assert len(named) > 20
    for each in named:
        words = [word for word in shlex.split(each) if not word.isupper() and not word.startswith("<")]
        command: Any = typer.main.get_command(app)
        words = [word for word in words if word != "--help"]
        while words and hasattr(command, "get_command"):
            command = command.get_command(None, words.pop(0))
            assert command is not None, f"there is no `dstack {each}`"
        flags = {flag for option in command.params for flag in option.opts}
        assert not {word for word in words if word.startswith("-")} - flags, each

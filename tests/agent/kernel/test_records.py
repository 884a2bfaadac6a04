"""Records are what `dataclasses` would make of them, as far as the agent uses that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program import build
from chalicelib.agent.program.commands import Abort, End, Remove, Start, Trim
from chalicelib.agent.program.session import Message
from chalicelib.agent.runtimes.users import HeldId
from chalicelib.agent.volumes.signatures import Contents


def test_it_is_made_from_values_by_place_and_by_name() -> None:
    assert (Trim("t", 5).task, Trim(offset=5, task="t").offset, Trim("t", offset=6).offset) == ("t", 5, 6)
    assert (Contents().table, Contents(("ext4",), blank=True).filesystems, Contents(blank=True).blank) == (
        "",
        ("ext4",),
        True,
    )


def test_one_record_s_defaults_stay_as_they_are() -> None:
    first, second = (Message(1, {}, 0.0, "", 0, 0.0, {}) for _ in range(2))
    first.facts = True
    assert (second.facts, Message(1, {}, 0.0, "", 0, 0.0, {}).facts) == (False, False)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("t",), {}),  # a field without a value
        (("t", 1, 2), {}),
        (("t",), {"task": "u", "offset": 1}),  # twice
        (("t",), {"size": 1}),
        (("t", 1), {"size": 1}),
    ],
)
def test_whatever_doesn_t_fit_its_fields_is_refused(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="Trim has the fields task, offset"):
        Trim(*values, **named)


def test_equal_means_the_same_kind_and_the_same_values() -> None:
    assert Trim("t", 5) == Trim("t", 5) != Trim("t", 6)
    assert Abort("t") != Remove("t")
    assert Abort("t") != "t"
    assert End() == End()
    assert len({Abort("t"), Abort("t"), Remove("u")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(HeldId(1, 2))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Start("t", {}))


def test_it_is_shown_with_its_fields() -> None:
    assert (repr(Trim("t", 5)), repr(End())) == ("Trim(task='t', offset=5)", "End()")


@pytest.mark.slow
def test_an_agent_starts_without_what_only_some_need(tmp_path: Path) -> None:
    build.write(str(tmp_path / "agent.pyz"))
    program = """
import sys; sys.path.insert(0, sys.argv[1])
from dstack_agent.program import main, program
from dstack_agent.runtimes import docker, process
print(*sorted({"dataclasses", "inspect", "platform", "urllib.request", "zipfile"} & set(sys.modules)))"""
    argv = [sys.executable, "-I", "-S", "-c", program, str(tmp_path / "agent.pyz")]
    assert subprocess.check_output(argv, text=True).split() == []

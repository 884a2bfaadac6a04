"""In which of its commands a job ended, from a file that is the job's to write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chalicelib.agent.runtimes import steps

SPEC = {"steps": ["the job's preparation", "command 1 (`a`)", "command 2 (`b`)", ""]}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1\n", "the job's preparation"),
        ("1\n2\n3\n", "command 2 (`b`)"),
        ("1\n2\n3\n4\n", ""),
        *((odd, "") for odd in ("", "\n", "0\n", "5\n", "-1\n", "x", "2x", "\u0662", "9" * 5000, "1\n2\nx\n")),
    ],
)
def test_its_name(text: str, name: str) -> None:
    assert steps.name(SPEC, text) == name
    assert steps.name({}, text) == steps.name({"steps": None}, text) == ""


def test_a_file_of_an_earlier_attempt_is_begun_anew(tmp_path: Path) -> None:
    place = tmp_path / "command"
    place.write_text("3\n")
    steps.make(str(place), os.getuid(), os.getgid())
    assert steps.read(str(place)) == "" and place.stat().st_mode & 0o777 == 0o600
    place.write_text("".join(f"{number}\n" for number in range(1, 1001)))
    assert steps.read(str(place)).endswith("999\n1000\n") and len(steps.read(str(place))) <= steps.MOST


def test_nothing_is_read_of_what_a_job_puts_in_its_place(tmp_path: Path) -> None:
    place, secret = tmp_path / "command", tmp_path / "secret"
    assert steps.read(str(place)) == ""
    secret.write_text("2\n")
    place.symlink_to(secret)
    assert steps.read(str(place)) == ""
    place.unlink()
    place.mkdir()
    assert steps.read(str(place)) == ""
    place.rmdir()
    os.mkfifo(place)
    writer = os.open(place, os.O_RDWR)
    assert steps.read(str(place)) == "", "and nobody waits"
    os.close(writer)


def test_only_a_job_with_several_commands_has_such_a_file() -> None:
    assert steps.variable(SPEC, "/x") == {"DSTACK_COMMAND_FILE": "/x"}
    assert steps.variable({"steps": []}, "/x") == steps.variable({}, "/x") == {}

"""Exit codes are those of the table in the reference: every row is shown by command lines here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.reference import EXIT_CODES, reference
from tests.cli.applying.test_flags import ANSWERS
from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.plane import NOT_THERE, Plane, finished, run, steps, submission

TASK = "type: task\nname: train\ncommands: [ls]\n"
Case = tuple[str, dict[str, Any], dict[str, Any]]  # command line, answers, how it is run
ENDED = run(status="failed", latest=submission("failed", status_message="no capacity", exit_status=None))
STOPPED = run(status="terminated", latest=submission("terminated", exit_status=None))
CASES: dict[str, list[Case]] = {
    "done": [
        ("ps", {}, {}),
        ("--help", {}, {}),
        ("--version", {}, {}),
        ("", {}, {}),
        ("apply -y -d", {}, {}),
        ("apply -y", {"/runs/get": finished()}, {}),
        ("attach train --logs", {"/runs/get": finished()}, {}),
        ("logs train", {"/runs/get": finished("train", "failed", 7)}, {}),
        ("stop train -y", {"/runs/get": finished()}, {}),
    ],
    "declined": [
        ("apply", {}, {"answers": "n\n"}),
        ("stop train", {}, {"answers": "n\n"}),
        ("fleet delete gpu", {}, {"answers": "n\n"}),
    ],
    "left running": [
        ("apply -y", {"/runs/get": run()}, {"sleep": interrupt_at}),
        ("attach train --logs", {"/runs/get": run()}, {"sleep": interrupt_at}),
        ("logs train --follow", {"/runs/get": run()}, {"sleep": interrupt_at}),
        ("ps -w", {}, {"sleep": interrupt_at}),
    ],
    "an error": [
        ("run get x", {"/runs/get": NOT_THERE}, {}),
        ("ps", {"/api/runs/list": (500, {"detail": "broken"})}, {}),
        ("ps", {"/api/runs/list": (403, {"detail": "no"})}, {}),
        ("apply -f nothing.yml", {}, {}),
        ("apply -f wrong.yml -y", {}, {}),
        ("stop train", {}, {}),  # nobody answers
        ("preset pull main/qwen", {}, {}),
        ("ps --project nobody", {}, {}),
    ],
    "no exit status": [
        ("apply -y", {"/runs/get": ENDED}, {}),
        ("apply -y", {"/runs/get": STOPPED}, {}),
        ("attach train --logs", {"/runs/get": STOPPED}, {}),
    ],
    "a usage error": [
        ("aply", {}, {}),
        ("ps --nope", {}, {}),
        ("ps -n many", {}, {}),
        ("logs", {}, {}),
        ("apply --spot --on-demand -y", {}, {}),
        ("logs train --since soon", {}, {}),
        ("ps --json --watch", {}, {}),
        ("apply --retry --no-retry -y", {}, {}),
        ("apply --gpu A100:B:C -y", {}, {}),
        ("apply --memory 16G -y", {}, {}),
        ("apply -b nowhere -y", {}, {}),
        ("apply -e 1A=2 -y", {}, {}),
        ("apply -p a -y", {}, {}),
        ("offer --max-duration 1h30m", {}, {}),
        ("fleet nope", {}, {}),
    ],
    "the job's status": [
        ("apply -y", {"/runs/get": finished("train", "failed", 7)}, {}),
        ("attach train --logs", {"/runs/get": steps(run(), finished("train", "failed", 7))}, {}),
    ],
}


@pytest.mark.parametrize(
    ("row", "line", "answers", "how"), [(row, *case) for row, cases in CASES.items() for case in cases]
)
def test_a_command_ends_as_the_table_says(
    dstack: Dstack, plane: Plane, row: str, line: str, answers: dict[str, Any], how: dict[str, Any]
) -> None:
    (dstack.terminal.cwd / ".dstack.yml").write_text(TASK)
    (dstack.terminal.cwd / "wrong.yml").write_text("type: task\nnmae: x\n")
    plane.answers |= {**ANSWERS, **answers}
    make: Callable[[int], Any] | None = how.get("sleep")
    ended = dstack(*line.split(), **{**how, **({"sleep": make(1)} if make else {})})
    (wanted,) = (code for code, name, _ in EXIT_CODES if name == row)
    assert ended.code == (7 if row == "the job's status" else int(wanted)), ended
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_the_reference_has_the_table_and_every_row_is_shown() -> None:
    assert {name for _, name, _ in EXIT_CODES} == set(CASES)
    for code, name, when in EXIT_CODES:
        assert f"| {code} | {name} | {when} |" in reference()


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error_to_write_about(tmp_path: Path) -> None:
    """As in `dstack --help | head -1`."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m cli.main apply --help | head -1 >/dev/null; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1) and not done.stderr, done


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ps", "apply -y", "--version"])
def test_in_a_folder_that_was_deleted_a_command_says_so(tmp_path: Path, command: str) -> None:
    (tmp_path / "gone").mkdir()
    argv = ["bash", "-c", f"rmdir ../gone; exec {sys.executable} -P -m cli.main {command}"]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd()), "HOME": str(tmp_path)}
    done = subprocess.run(
        argv, cwd=tmp_path / "gone", env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "The folder that this shell is in has been deleted.\nGo to another one with `cd`.\n"

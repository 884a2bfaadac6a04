"""`dstack preset`: which presets are shown, found and deleted, and what is refused."""

from __future__ import annotations

import json

import pytest

from cli.commands.preset import complete_ids
from cli.presets import records
from tests.cli.conftest import Dstack, interrupt_at
from tests.cli.presets.conftest import Work
from tests.cli.presets.samples import DONE, INTERRUPTED, SUBMITTED, fill, preset, trial


@pytest.fixture
def stored(dstack: Dstack) -> Dstack:
    fill(dstack.terminal.home)
    return dstack


def shown(dstack: Dstack, *args: str) -> list[str]:
    return [one["id"] for one in json.loads(dstack("preset", *args, "--json").out)["presets"]]


def test_the_list_shows_the_unfinished_or_else_the_last_one(stored: Dstack) -> None:
    assert shown(stored) == [INTERRUPTED] and shown(stored, "-a") == [DONE, INTERRUPTED]
    assert shown(stored, "-n", "1") == [DONE] and shown(stored, "list", "-n", "5") == [DONE, INTERRUPTED]
    assert stored("preset", "delete", INTERRUPTED, "-y").code == 0
    assert shown(stored) == [DONE]


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("-a --base Qwen/Qwen3-8B", [DONE, INTERRUPTED]),
        ("-a --base other", []),
        ("-a --repo Qwen/Qwen3-8B", [DONE]),  # whose best trial serves it
        ("-a --project main", [DONE, INTERRUPTED]),
        ("-a --project lab", []),
    ],
)
def test_the_list_is_narrowed(stored: Dstack, flags: str, wanted: list[str]) -> None:
    assert shown(stored, *flags.split()) == wanted


def test_no_presets_yet(bare: Dstack) -> None:
    ended = bare("preset")
    assert ended.code == 0 and "type: preset" in ended.err
    assert bare("preset", "get", "x").code == 1 and "dstack preset -a" in bare("preset", "logs", "x").err


def test_a_name_is_that_of_the_newest(stored: Dstack) -> None:
    newer = preset(id="ffff0000", submitted_at=records.iso(SUBMITTED + 60))
    records.created(stored.terminal.home, newer)
    assert json.loads(stored("preset", "get", "qwen", "--json").out)["id"] == "ffff0000"
    assert json.loads(stored("preset", "get", DONE, "--json").out)["id"] == DONE


def test_folders_of_others_are_left_alone(stored: Dstack) -> None:
    """Other clients have theirs at the same place."""
    for name, text in {"aaaa0000": '{"id": "aaaa0000", "state": 3}', "bbbb0000": "{", "cccc0000": "[]"}.items():
        folder = records.root(stored.terminal.home) / name
        folder.mkdir()
        (folder / "session.json").write_text(text)
    assert shown(stored, "-a") == [DONE, INTERRUPTED]
    assert stored("preset", "delete", "aaaa0000", "-y").code == 1


def test_a_damaged_trial_is_an_error_with_its_place(stored: Dstack) -> None:
    path = records.root(stored.terminal.home) / DONE / "trials" / "1" / "trial.json"
    path.write_text("{")
    ended = stored("preset", "get", DONE)
    assert ended.code == 1 and DONE in ended.err and "can't be read" in ended.err, ended


def test_presets_are_deleted_by_model(stored: Dstack) -> None:
    assert "Nothing was deleted" in stored("preset", "delete", "--base", "Qwen/Qwen3-8B", answers="n\n").out
    ended = stored("preset", "delete", "--base", "Qwen/Qwen3-8B", "-y")
    assert ended.out == f"Deleted presets {INTERRUPTED}, {DONE}.\n" and shown(stored, "-a") == []
    assert "No preset on this machine is of m" in stored("preset", "delete", "--repo", "m", "-y").err
    assert stored("preset", "delete", "-y").code == 2


def test_the_log_has_times(stored: Dstack) -> None:
    assert stored("preset", "logs", DONE).out.startswith("2026-11-21T03:00:00+00:00  Trial 1 of 2 (the baseline)")
    followed = stored("preset", "logs", DONE, "-f")
    assert followed.code == 0 and "meets all limits" in followed.out


def test_watching_ends_with_ctrl_c(stored: Dstack) -> None:
    ended = stored("preset", "-w", sleep=interrupt_at(2))
    assert ended.code == 0 and ended.out.count(INTERRUPTED) >= 2
    assert stored("preset", "list", "--watch", "--json").code == 2
    assert stored("preset", "--base", "a", "--repo", "b").code == 2


@pytest.mark.parametrize("line", ["push qwen main/qwen", "pull main/qwen"])
def test_there_is_no_registry(stored: Dstack, line: str) -> None:
    ended = stored("preset", *line.split())
    assert ended.code == 1 and "no registry of presets" in ended.err and ended.err.count("\n") == 2


def test_create_is_an_older_spelling_of_apply(work: Work) -> None:
    ended = work("preset", "create", "-f", "qwen.dstack.yml", "-y", "--trials", "1")
    assert ended.code == 0 and "older spelling of `dstack apply`" in ended.err, ended
    assert len(work.preset()["trials"]) == 1
    (work.dstack.terminal.cwd / "task.yml").write_text("type: task\ncommands: [ls]\n")
    ended = work("preset", "create", "-f", "task.yml")
    assert ended.code == 1 and "describes a task, not a preset" in ended.err


@pytest.mark.parametrize("flag", ["--trials 2", "--previous x", "--keep-service"])
def test_flags_of_presets_are_refused_elsewhere(dstack: Dstack, flag: str) -> None:
    (dstack.terminal.cwd / ".dstack.yml").write_text("type: task\nname: a\ncommands: [ls]\n")
    ended = dstack("apply", "-y", *flag.split())
    assert ended.code == 2 and f"{flag.split(maxsplit=1)[0]} is for presets" in ended.err


def test_ids_are_completed(stored: Dstack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(stored.terminal.home))
    assert complete_ids("") == [INTERRUPTED, DONE] and complete_ids("1a") == [DONE] and complete_ids("x") == []


def test_a_trial_that_wasnt_measured_is_a_dot_in_the_course(stored: Dstack) -> None:
    folder = records.find(stored.terminal.home, DONE)
    folder.write_trial(trial(3, None, error="it failed: out of memory\nCUDA error"))
    assert "▅█· 1500 tok/s" in stored("preset", "get", DONE).out
    assert "CUDA error" not in stored("preset", "get", DONE).out

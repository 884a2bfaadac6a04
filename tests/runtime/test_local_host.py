"""What a server's start tidies up of the agents of this machine."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from chalicelib.runtime.local_host import LOCK, cut, tidy


def agent(data: Path, name: str) -> Path:
    (data / name / "tasks").mkdir(parents=True)
    (data / name / LOCK).touch()
    (data / name / "credential").write_text("hush")
    return data / name


def test_the_folders_of_agents_whose_instances_are_gone_go(tmp_path: Path) -> None:
    first, current, busy, held = (agent(tmp_path, f"agent{end}") for end in ("", "-0000000a", "-0000000b", "-0000000c"))
    (busy / "tasks" / "one").mkdir()
    for name in ("agents", "agent-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "agent.pyz").touch()
    with (held / LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tidy(tmp_path, [current])
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([current.name, busy.name, held.name, "agents", "agent-mine", "agent.pyz"])
    assert not first.exists() and (current / "credential").exists()


def test_what_cannot_be_deleted_holds_nobody_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "agent").symlink_to(tmp_path / "elsewhere")
    tidy(tmp_path, [tmp_path / "agent-0000000a"])
    assert "can't be deleted" in caplog.text and (tmp_path / "elsewhere").is_dir()


def test_a_log_that_became_too_large_keeps_its_end_and_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "agent.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"".join(b"line %03d\n" % n for n in range(100)))
        cut(path, most=900)
        assert path.stat().st_size == 900, "not too large"
        cut(path, most=899)
        writer.write(b"after\n")
    lines = path.read_text().splitlines()
    assert lines[0].startswith("line 0") and lines[-2:] == ["line 099", "after"] and len(lines) == 50
    cut(tmp_path / "none.log")

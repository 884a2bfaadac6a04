"""Ids for tasks, as far as they can be asked without being root or killing anybody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chalicelib.agent.runtimes import users
from chalicelib.agent.runtimes.accounts import TaskAccount
from chalicelib.agent.runtimes.users import HeldId, Users, id_range, sweep
from tests.harness.descriptors import descriptors, opened_since


@pytest.mark.parametrize(("text", "want"), [("61000-61999", range(61000, 62000)), ("1000-1000", range(1000, 1001))])
def test_a_range_of_ids(text: str, want: range) -> None:
    assert id_range(text) == want


@pytest.mark.parametrize("text", ["", "61000", "999-2000", "2000-1999", "1000-2147483648", "-1-5", "a-b", "٣٠٠٠-٤٠٠٠"])
def test_what_is_no_range_of_ids_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="isn't a range of user ids from 1000 on, such as 61000-61999") as caught:
        id_range(text)
    assert repr(text) in str(caught.value)


@pytest.mark.slow
def test_an_id_is_held_by_a_lock_that_lists_its_folders(tmp_path: Path) -> None:
    locks = tmp_path / "deep" / "locks"
    held = Users("61000-61001", str(locks)).hold(61000)
    before = descriptors()
    assert held is not None and Users("61000-61001", str(locks)).hold(61000) is None
    assert not opened_since(before)
    assert (locks.stat().st_mode & 0o777, (locks / "61000").stat().st_mode & 0o777) == (0o700, 0o600)
    assert held.folders() == []
    held.set_folders(["/one", "/two"])
    held.set_folders(["/one"])
    os.close(held.lock)
    again = Users("61000-61001", str(locks)).hold(61000)
    assert again is not None and again.folders() == ["/one"]


def test_what_an_id_left_where_everybody_may_write_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/nowhere")
    sweep(str(tmp_path), os.getuid() + 1)
    assert len(list(tmp_path.iterdir())) == 3, "another's"
    sweep(str(tmp_path), os.getuid())
    assert list(tmp_path.iterdir()) == []
    sweep(str(tmp_path / "nothing"), os.getuid())


def test_an_id_is_not_inherited_while_a_process_of_its_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this very process were one that the kernel can't end: there is no time left to kill it."""
    monkeypatch.setattr(users, "CLEAR_SECONDS", -1.0)
    (tmp_path / "home").mkdir()
    with (tmp_path / "lock").open("w+b") as lock:
        held = HeldId(os.getuid(), lock.fileno())
        held.set_folders([str(tmp_path / "home")])
        assert not held.clear() and not held.inherit()
    assert (tmp_path / "home").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may act as somebody else")
def test_what_cant_be_deleted_stops_nobody(tmp_path: Path) -> None:
    account = TaskAccount("nobody")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    os.chown(tmp_path / "folder", account.uid, account.gid)  # but not what is in it
    (tmp_path / "folder").chmod(0o500)
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        if parent.stat().st_uid == 0 and "pytest" in str(parent):
            parent.chmod(0o755)
    with account.acting():
        sweep(str(tmp_path), account.uid)
    assert (tmp_path / "folder" / "deep").exists()

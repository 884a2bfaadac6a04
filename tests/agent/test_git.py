"""What git may know of a repository's credentials, and who may read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from chalicelib.agent.accounts import TaskAccount
from chalicelib.agent.git import Git, give

NOBODY = "4711:4712"
URL = "https://git.example/a.git"


def settled(folder: Path, account: TaskAccount | None, url: str = URL, token: str = "top-secret") -> Git:
    git = Git(str(folder), account, "t", lambda _: None, float("inf"))
    git.settle(url, token, "KEY\r\nOF MINE\r\n\n", "git.example ssh-ed25519 A\n")
    return git


def test_credentials_are_in_files_of_a_private_folder(tmp_path: Path) -> None:
    git = settled(tmp_path / "private", None)
    kept = {path.name: path for path in (tmp_path / "private").iterdir()}
    assert {name: stat.S_IMODE(path.stat().st_mode) for name, path in kept.items()} == dict.fromkeys(kept, 0o600)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    assert kept["token"].read_text() == "username=oauth2\npassword=top-secret\n"
    helper = f'[credential "https://git.example"]\n\thelper = "!f() {{ cat {kept["token"]}; }}; f"\n'
    assert kept[".gitconfig"].read_text().endswith(helper)
    assert kept["key"].read_text() == "KEY\nOF MINE\n", "as ssh wants it"
    assert git.hosts_seen() == "git.example ssh-ed25519 A\n"
    git.forget()
    assert not (tmp_path / "private").exists()


@pytest.mark.parametrize(("url", "token"), [("git@git.example:a.git", "secret"), (URL, ""), (URL, "a\nusername=b")])
def test_no_token_is_kept_that_git_could_not_use(tmp_path: Path, url: str, token: str) -> None:
    settled(tmp_path / "private", None, url, token)
    assert not (tmp_path / "private/token").exists()
    assert "https://" not in (tmp_path / "private/.gitconfig").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs git as somebody else")
def test_they_belong_to_whoever_runs_git(tmp_path: Path) -> None:
    """Or it couldn't read them: everybody else is shut out."""
    settled(tmp_path / "private", TaskAccount(NOBODY))
    private = tmp_path / "private"
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (private, *private.iterdir())} == {(4711, 4712)}


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_folder_is_given_with_all_in_it_and_nothing_that_its_links_lead_to(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    (theirs / "folder").mkdir(parents=True)
    (theirs / "folder/file").write_text("")
    ours.mkdir()
    (theirs / "folder/link").symlink_to(ours)
    give(str(theirs), 4711, 4712)
    given = {path for path in tmp_path.rglob("*") if path.lstat().st_uid == 4711 and path.lstat().st_gid == 4712}
    assert given == {theirs, *theirs.rglob("*")}

"""What git may know of a repository's credentials, and who may read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.accounts import TaskAccount
from chalicelib.agent.runtimes.git import Git, is_key_of, ssh_host

NOBODY = "4711:4712"
URL = "https://git.example/a.git"


def settled(folder: Path, account: TaskAccount, url: str = URL, token: str = "top-secret") -> Git:
    git = Git(str(folder), account, "t", lambda _: None, float("inf"))
    git.prepare(url, token, "KEY\r\nOF MINE\r\n\n", "git.example ssh-ed25519 A\n")
    return git


def test_credentials_are_in_files_of_a_private_folder(tmp_path: Path) -> None:
    git = settled(tmp_path / "private", TaskAccount(None))
    files = {path.name: path for path in (tmp_path / "private").iterdir()}
    assert {name: stat.S_IMODE(path.stat().st_mode) for name, path in files.items()} == dict.fromkeys(files, 0o600)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    assert files["token"].read_text() == "username=oauth2\npassword=top-secret\n"
    helper = f'[credential "https://git.example"]\n\thelper = "!f() {{ cat {files["token"]}; }}; f"\n'
    assert files[".gitconfig"].read_text().endswith(helper)
    assert files["key"].read_text() == "KEY\nOF MINE\n", "as ssh wants it"
    assert git.read_known_hosts() == "git.example ssh-ed25519 A\n"
    git.forget()
    assert not (tmp_path / "private").exists()


@pytest.mark.parametrize(("url", "token"), [("git@git.example:a.git", "secret"), (URL, ""), (URL, "a\nusername=b")])
def test_no_token_is_kept_that_git_could_not_use(tmp_path: Path, url: str, token: str) -> None:
    settled(tmp_path / "private", TaskAccount(None), url, token)
    assert not (tmp_path / "private/token").exists()
    assert "https://" not in (tmp_path / "private/.gitconfig").read_text()


def accounts_folder(tmp_path: Path) -> Path:
    """A folder of the account's that it can get to."""
    for parent in (tmp_path, *tmp_path.parents):
        if "pytest" in str(parent):
            parent.chmod(0o711)
    (tmp_path / "theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "theirs", 4711, 4712)
    return tmp_path / "theirs"


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs git as somebody else")
def test_they_belong_to_whoever_runs_git(tmp_path: Path) -> None:
    """Or it couldn't read them: everybody else is shut out."""
    private = accounts_folder(tmp_path) / "private"
    settled(private, TaskAccount(NOBODY))
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (private, *private.iterdir())} == {(4711, 4712)}


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs git as somebody else")
@pytest.mark.slow
def test_a_link_that_the_account_put_there_leads_root_nowhere(tmp_path: Path) -> None:
    """A user that a job names may have other processes, which can write where its git works."""
    roots = tmp_path / "roots"
    roots.mkdir(mode=0o700)
    (roots / "known_hosts").write_text("root's")
    (accounts_folder(tmp_path) / "stage").symlink_to(roots)
    with pytest.raises(PermissionError):
        settled(tmp_path / "theirs/stage/private", TaskAccount(NOBODY))
    assert [path.name for path in roots.iterdir()] == ["known_hosts"]
    git = settled(tmp_path / "theirs/private", TaskAccount(NOBODY))
    (tmp_path / "theirs/private/known_hosts").unlink()
    (tmp_path / "theirs/private/known_hosts").symlink_to(roots / "known_hosts")
    with pytest.raises(PermissionError):
        git.read_known_hosts()


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("git@git.example:a.git", "git.example", ""),
        ("git@git.example:22/a.git", "git.example", ""),
        ("ssh://git@Git.Example/a.git", "git.example", ""),
        ("ssh://git.example:22/a.git", "git.example", ""),
        ("ssh://git.example:2222/a.git", "git.example", "2222"),
        ("ssh://git@[::1]:2222/a.git", "::1", "2222"),
        ("git@[::1]:a.git", "::1", ""),
    ],
)
def test_which_host_a_repository_is_on(url: str, host: str, port: str) -> None:
    assert ssh_host(url) == (host, port)


def test_a_line_of_known_hosts_is_of_its_host_and_port() -> None:
    assert is_key_of("git.example ssh-ed25519 A", "git.example", "") and is_key_of(
        "a,git.example ssh-rsa B", "git.example", ""
    )
    assert is_key_of("[git.example]:2222 ssh-ed25519 A", "git.example", "2222")
    assert not is_key_of("[git.example]:2222 ssh-ed25519 A", "git.example", "")
    assert not is_key_of("other ssh-ed25519 git.example", "git.example", "")

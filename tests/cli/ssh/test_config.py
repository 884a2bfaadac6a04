"""The SSH configuration of runs: its files, its place in the user's, and servers that would like to write more into it.

How OpenSSH reads it is in `test_config_real`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib import contract
from chalicelib.errors import Refused
from cli.ssh.config import NEWER, Hop, JobHops, SshFolder, config_text, include_in, known_hosts_text, with_include
from cli.ssh.routes import routes_to
from tests.cli.fake_ssh import HOST_KEY, FakeSsh
from tests.harness.rows import each
from tests.harness.whole import whole

LINE = "Include ~/.dstack/ssh/runs/*/config"
JOB = Hop("localhost", 40022, "root", HOST_KEY)


def routes(**data: Any) -> list[JobHops]:
    placed = {
        "hostname": "10.0.0.7",
        "ssh_port": 22,
        "username": "ubuntu",
        "dockerized": True,
        **data.pop("placed", {}),
    }
    runtime = {"ports": {"10022": 40022}, "username": "root", **data.pop("runtime", {})}
    login = {"port": 40022, "host_key": HOST_KEY, "problem": "", **data.pop("login", {})}
    parts = {"job_provisioning_data": placed, "job_runtime_data": runtime, "login": login}
    submission = whole(contract.Submission, parts)
    alias, here = data.pop("alias", "train"), FakeSsh(reachable=True)
    return routes_to(submission, alias, Path("/home/me/.dstack/ssh/0a1b2c3d"), ("python", "-m", "cli.ssh.proxy"), here)


# --- a hostile server ------------------------------------------------------------------------------------------------

HOSTILE = [
    "a\nProxyCommand touch /tmp/x",
    "a ProxyCommand=x",
    "-oProxyCommand=x",
    "a\rb",
    "$(id)",
    "`id`",
    "a;b",
    "a'b",
    'a"b',
    "*",
    "a#b",
    "\x1b[2J",
    "",
    " ",
    7,
    ["a"],
    {"a": 1},
    "x" * 10_000,
]


@each("value", HOSTILE, ids=lambda value: repr(value)[:20])
@each("place", ["hostname", "username", "proxy host", "proxy user", "job user", "host key", "alias"])
def test_what_a_server_sends_is_never_a_line_of_configuration(place: str, value: Any) -> None:
    proxy = {"hostname": "login.lab", "port": 22, "username": "ann"}
    sent: dict[str, dict[str, Any]] = {
        "hostname": {"placed": {"hostname": value}},
        "username": {"placed": {"username": value}},
        "proxy host": {"placed": {"ssh_proxy": proxy | {"hostname": value}}},
        "proxy user": {"placed": {"ssh_proxy": proxy | {"username": value}}},
        "job user": {"runtime": {"username": value}},
        "host key": {"login": {"host_key": value}},
        "alias": {"alias": value},
    }
    try:
        found = routes(**sent[place])
    except Refused as refused:
        assert "so it wasn't used" in refused.message and "\n" not in refused.message
        return
    assert value in ("", 7) or place == "alias", "only what means nothing, or a name that is one, is left"
    texts = [config_text(one, Path("/k"), Path("/f")) + known_hosts_text(one) for one in found]
    assert not any("touch" in text or "x" * 100 in text for text in texts)


@pytest.mark.parametrize("port", [0, 65536, -1, "22", "22\nProxyCommand x", True, 2.5, None])
def test_a_port_is_a_number(port: Any) -> None:
    with pytest.raises(Refused, match="as a port"):
        Hop("h", port, "u")


@pytest.mark.parametrize("host", ["10.0.0.7", "login.lab", "fe80::1%eth0", "::1", "xn--bcher-kva.example", "node_7"])
def test_what_hosts_are_called_is_accepted(host: str) -> None:
    assert Hop(host, 22, "ubuntu").host == host


@pytest.mark.parametrize("user", ["root", "ubuntu", "first.last", "svc-ml", "DOMAIN\\ann", "ann@lab.org", "pc$"])
def test_what_users_are_called_is_accepted(user: str) -> None:
    assert Hop("h", 22, user).user == user


def test_options_that_a_client_doesnt_know_arent_written() -> None:
    """Each would be a mistake in the configuration, for every host."""
    texts = [config_text(JobHops("train", JOB), Path("/k"), Path("/f"), known) for known in ((), {"sessiontype"})]
    newer = [[name for name in NEWER if f"    {name}\n" in text] for text in texts]
    assert newer == [[], ["KnownHostsCommand none", "SessionType default"]]


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [("ssh-rsa", "rsa-sha2-512,rsa-sha2-256,ssh-rsa"), ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256")],
)
def test_a_pinned_key_is_asked_for_by_its_own_algorithms(key: str, algorithms: str) -> None:
    hop = Hop("localhost", 40022, "root", f"{key} {HOST_KEY.split()[1]}")
    assert f"    HostKeyAlgorithms {algorithms}\n" in config_text(JobHops("train", hop), Path("/k"), Path("/f"))


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_runs_files_are_private_and_gone_afterwards(tmp_path: Path) -> None:
    book = SshFolder(tmp_path / "ssh")
    attached = book.attach("train")
    book.write(attached, JobHops("train", JOB, proxy=("x",)), {"token": "secret"})
    assert {path.name: path.stat().st_mode & 0o777 for path in attached.folder.iterdir() if path.name != "lock"} == {
        "config": 0o600,
        "known_hosts": 0o600,
        "endpoint.json": 0o600,
        "run": 0o600,
    }
    assert attached.folder.stat().st_mode & 0o777 == 0o700
    assert json.loads((attached.folder / "endpoint.json").read_text()) == {"token": "secret"}
    book.detach(attached)
    assert list((book.folder / "runs").iterdir()) == []


def test_the_last_one_to_detach_removes_them(tmp_path: Path) -> None:
    book = SshFolder(tmp_path)
    one, two = book.attach("train"), book.attach("train")
    book.write(one, JobHops("train", JOB))
    book.detach(one)
    assert two.config.exists()
    book.detach(two)
    assert not two.folder.exists()


def test_namesakes_of_two_projects_have_a_folder_each(tmp_path: Path) -> None:
    book = SshFolder(tmp_path)
    one, two, same = book.attach("train", "run-1"), book.attach("train", "run-2"), book.attach("train", "run-1")
    assert (one.folder, one.named) == (same.folder, True) and (two.folder.name, two.named) == ("train@2", False)
    for attached, host in ((one, "here"), (two, "there")):
        book.write(attached, JobHops("train", Hop(host, 22, "root")))
    assert "HostName here" in one.config.read_text() and "HostName there" in two.config.read_text()
    assert [path.parent.name for path in tmp_path.glob("runs/*/config")] == ["train"], "what `ssh train` reads"
    book.detach(one)
    third = book.attach("train", "run-2")
    assert third.folder == two.folder
    book.detach(same)
    assert book.attach("train", "run-3").named
    for attached in (two, third):
        book.detach(attached)
    assert two.folder.exists() is False


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    book = SshFolder(tmp_path)
    killed = book.attach("old")
    book.write(killed, JobHops("old", JOB))
    killed.lock.close()  # as its end does
    attached = book.attach("other")
    book.attach("new")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["new", "other"]
    attached.lock.close()


def test_a_link_in_our_folder_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    book, other = SshFolder(tmp_path / "ssh"), tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("x")
    (tmp_path / "ssh" / "runs").mkdir(parents=True)
    for name in ("train", "old"):
        (tmp_path / "ssh" / "runs" / name).symlink_to(other)
    attached = book.attach("train")
    assert not attached.folder.is_symlink() and [path.name for path in other.iterdir()] == ["mine"]
    book.detach(attached)
    assert list((tmp_path / "ssh" / "runs").iterdir()) == []


def test_an_ssh_that_a_killed_process_has_left_is_ended_by_the_next_and_no_other(tmp_path: Path) -> None:
    book = SshFolder(tmp_path)
    killed = book.attach("train")
    with sleeping("ssh", "-F", str(killed.config), "train") as left, sleeping("ssh", "-F", "/x", "train") as other:
        book.note(killed, left.pid)
        again = book.attach("train")
        assert left.poll() is None, "two may be attached"
        killed.lock.close()
        book.detach(again)
        assert left.wait(120) == -signal.SIGTERM and not killed.folder.exists()
        again = book.attach("train")
        book.note(again, other.pid)
        book.detach(again)
        assert other.poll() is None, "a process that has its number by now"


@contextlib.contextmanager
def sleeping(*args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is called so; `tail -F` waits, whatever it is called."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(args, executable=shutil.which("tail"), stdout=quiet, stderr=quiet) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "{line}"),
        ("Host *\n  User ann\n", "{line}Host *\n  User ann\n"),
        ("# mine\n\nHost a\n", "{line}# mine\n\nHost a\n"),
        ("Host a\n  User b", "{line}Host a\n  User b"),
        (f"Host *\n  User ann\n{LINE}\n", "{line}Host *\n  User ann\n"),
        (f"Include other\n{LINE}\n", "{line}Include other\n"),
        (f"# mine\n  {LINE}\nHost *\n", f"# mine\n  {LINE}\nHost *\n"),
        ("Host a\r\n", "{line}Host a\r\n"),
    ],
)
def test_ours_comes_first_and_once(before: str, after: str) -> None:
    once = with_include(before, LINE)
    included = f"# The runs that dstack is attached to. First, because SSH takes the first value it finds.\n{LINE}\n"
    assert once == after.replace("{line}", included)
    assert with_include(once, LINE) == once


def test_the_users_file_keeps_its_mode_its_link_and_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles" / "ssh"
    real.write_bytes(b"# caf\xe9\r\nHost a\nHost b\r")
    real.chmod(0o640)
    link = tmp_path / ".ssh" / "config"
    link.parent.mkdir()
    link.symlink_to(real)
    include_in(link, tmp_path / ".dstack")
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert real.read_bytes().endswith(b"# caf\xe9\r\nHost a\nHost b\r")
    assert [path.name for path in real.parent.iterdir()] == ["ssh"], "nothing beside it"


def test_a_user_without_a_configuration_gets_a_private_one(tmp_path: Path) -> None:
    include_in(tmp_path / ".ssh" / "config", tmp_path / ".dstack")
    made = tmp_path / ".ssh" / "config"
    assert made.stat().st_mode & 0o777 == 0o600 and made.parent.stat().st_mode & 0o777 == 0o700

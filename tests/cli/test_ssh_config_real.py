"""What OpenSSH makes of our configuration, asked with `ssh -G`, beside what a user has in theirs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cli.ssh_config import Attached, Book, Hop, JobHops, include_in
from tests.cli.fake_ssh import HOST_KEY

TRAPS = """Host *
    User ann
    Port 2200
    IdentityFile ~/.ssh/mine
    ControlMaster auto
    ControlPath ~/.ssh/shared-%r@%h:%p
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    ProxyJump bastion
"""


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.book = Book(folder / ".dstack" / "ssh")
        (folder / ".ssh").mkdir(parents=True)
        self.own = folder / ".ssh" / "config"
        self.own.write_text(TRAPS)
        self.attached: list[Attached] = []

    def attach(self, layout: JobHops) -> None:
        self.attached.append(self.book.attach(layout.alias))
        self.book.write(self.attached[-1], layout)
        include_in(self.own, self.folder / ".dstack")

    def asked(self, host: str) -> dict[str, str]:
        """Every setting of a host, as SSH would use it."""
        words = ["ssh", "-F", str(self.own), "-G", host]
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        pairs = [line.partition(" ") for line in said.stdout.splitlines()]
        return {name: " ".join(value for key, _, value in pairs if key == name) for name, _, _ in pairs}


@pytest.fixture(params=["home", "a home with 100% blanks"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return Home(tmp_path / request.param)


def test_every_hop_is_as_written_whatever_the_user_has_for_all_hosts(home: Home) -> None:
    key = str(home.folder / ".dstack" / "ssh" / "0a1b2c3d")
    jump = Hop("login.lab", 2222, "bob", "", ("/keys/lab", key), identities_only=False)
    host = Hop("10.0.0.7", 22, "ubuntu", HOST_KEY, (key,))
    home.attach(JobHops("train", Hop("localhost", 40022, "root", HOST_KEY, (key,)), (jump, host)))
    ours = home.folder / ".dstack" / "ssh"
    job = home.asked("train")
    assert (job["hostname"], job["port"], job["user"]) == ("localhost", "40022", "root")
    assert (job["proxyjump"], job["hostkeyalias"]) == ("train_host", "train")
    assert job["userknownhostsfile"] == str(ours / "runs" / "train" / "known_hosts").replace("%%", "%")
    assert (job["stricthostkeychecking"], job["controlmaster"]) == ("true", "false")
    assert "controlpath" not in job or job["controlpath"] == "none"
    assert job["identityfile"].replace("%%", "%").startswith(key) and job["identitiesonly"] == "yes"
    there = home.asked("train-host")
    assert there == home.asked("train_host") | {"host": "train-host"}
    assert (there["hostname"], there["port"], there["user"]) == ("10.0.0.7", "22", "ubuntu")
    assert (there["proxyjump"], there["hostkeyalias"]) == ("train_jump_host", "train_host")
    first = home.asked("train-jump-host")
    assert (first["hostname"], first["port"], first["user"]) == ("login.lab", "2222", "bob")
    assert first["stricthostkeychecking"] == "accept-new" and "hostkeyalias" not in first
    assert first["userknownhostsfile"] == str(ours / "known_hosts") and first["identitiesonly"] == "no"
    assert first["identityfile"].startswith("/keys/lab"), "the user's key for that host is tried first"


def test_a_run_that_is_called_like_anothers_hop_is_no_hop(home: Home) -> None:
    host = Hop("10.0.0.7", 22, "ubuntu", HOST_KEY)
    home.attach(JobHops("train", Hop("localhost", 40022, "root", HOST_KEY), (host,)))
    home.attach(JobHops("train-host", Hop("localhost", 40023, "root", HOST_KEY), (Hop("10.0.0.8", 22, "ubuntu"),)))
    hop = home.asked(home.asked("train")["proxyjump"])
    assert (hop["hostname"], hop["port"], hop["user"]) == ("10.0.0.7", "22", "ubuntu")
    run = home.asked("train-host")
    assert (run["hostname"], run["port"], run["user"]) == ("localhost", "40023", "root")
    assert home.asked(run["proxyjump"])["hostname"] == "10.0.0.8"


def test_two_jobs_of_one_machine_are_told_apart_by_their_keys(home: Home) -> None:
    other = HOST_KEY.replace("IB1y", "IB2y")
    for name, port, key in (("one", 40022, HOST_KEY), ("two", 40023, other)):
        home.attach(JobHops(name, Hop("localhost", port, "root", key), (Hop("10.0.0.7", 22, "ubuntu"),)))
    one, two = home.asked("one"), home.asked("two")
    assert (one["hostkeyalias"], two["hostkeyalias"]) == ("one", "two")
    assert one["userknownhostsfile"] != two["userknownhostsfile"]
    runs = home.book.folder / "runs"
    assert (runs / "two" / "known_hosts").read_text() == f"two {other}\n"


def test_the_command_that_carries_the_bytes_survives_the_shell(home: Home) -> None:
    words = ("/opt/my python", "-P", "-m", "cli.carry", "/home/me/100%/it's $HOME")
    home.attach(JobHops("train", Hop("localhost", 40022, "root", HOST_KEY), proxy=words))
    (ours,) = (home.book.folder / "runs").iterdir()
    command = next(line for line in (ours / "config").read_text().splitlines() if "ProxyCommand" in line)
    shell = command.split(None, 1)[1].replace("%%", "%")  # what SSH does before it hands it to a shell
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {shell}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert tuple(printed.stdout.splitlines()) == words
    assert "proxyjump" not in home.asked("train"), "the user's own proxy doesn't come first"


def test_hosts_that_arent_ours_are_the_users(home: Home) -> None:
    home.attach(JobHops("train", Hop("localhost", 40022, "root")))
    elsewhere = home.asked("example")
    assert (elsewhere["user"], elsewhere["port"], elsewhere["proxyjump"]) == ("ann", "2200", "bastion")

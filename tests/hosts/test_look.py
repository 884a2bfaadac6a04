"""A look at a host: the script in a real shell, its report, and everything that is missing named at once."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from chalicelib.hosts.look import SCRIPT, Report, lacks, report

FINE = Report(
    sudo="yes",
    kernel="Linux",
    arch="x86_64",
    os="Debian GNU/Linux 12 (bookworm)",
    clock=1_800_000_000,
    python="3.11",
    systemd=True,
    docker_client=True,
    docker="24.0.7",
    disk_mib=50_000,
    forwarding="yes",
    whole=True,
)
OWNER = "install/one"


def test_a_host_that_has_everything_lacks_nothing() -> None:
    assert lacks(FINE, "ubuntu", OWNER) == ()
    assert lacks(replace(FINE, owner=OWNER), "ubuntu", OWNER) == ()


@pytest.mark.parametrize(
    ("changes", "what", "mend"),
    [
        ({"sudo": "password"}, "sudo asks ubuntu for a password", "NOPASSWD"),
        ({"sudo": "missing"}, "ubuntu isn't root and there is no sudo", "log in as root"),
        ({"docker": "", "docker_client": False}, "there is no Docker Engine", "get.docker.com"),
        ({"docker": "", "docker_says": "Cannot connect"}, "doesn't answer (Cannot connect)", "enable --now docker"),
        ({"python": ""}, "there is no Python 3", "python3"),
        ({"python": "3.6"}, "its Python is 3.6, but 3.8 or newer is needed", "python3"),
        ({"systemd": False}, "wasn't booted with systemd", "systemd"),
        ({"forwarding": "no"}, "forbids forwarding", "AllowTcpForwarding yes"),
        ({"arch": "riscv64"}, "its CPU architecture is riscv64", "x86-64 or ARM64"),
        ({"kernel": "Darwin"}, "it runs Darwin", "Linux"),
        ({"disk_mib": 200}, "only 200 MiB are free", "1 GiB"),
        ({"owner": "install/two"}, "belongs to instance two of this server", "remove it from its fleet"),
        ({"owner": "other/two"}, "belongs to another dstack server (installation other)", "/var/lib/dstack/owner"),
    ],
)
def test_what_is_missing_is_named_with_what_mends_it(changes: dict[str, object], what: str, mend: str) -> None:
    (found,) = lacks(replace(FINE, **changes), "ubuntu", OWNER)
    assert what in found.what
    assert mend in found.mend
    assert str(found) == f"{found.what} (to fix it: {found.mend})"


def test_everything_is_named_at_once() -> None:
    assert len(lacks(replace(FINE, docker="", python="", sudo="password"), "ubuntu", OWNER)) == 3


def test_the_script_tells_about_this_machine() -> None:
    done = subprocess.run(["sh", "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=30)
    seen = report(done.stdout)
    assert seen.whole and seen.kernel == "Linux" and seen.arch == os.uname().machine
    assert seen.python and seen.disk_mib and seen.clock
    assert seen.sudo == ("root" if os.geteuid() == 0 else seen.sudo)


def test_a_look_that_was_cut_off_is_known() -> None:
    assert not report("uid=0\nsudo=root\n").whole


def test_numbers_that_arent_are_absent() -> None:
    assert report("clock=soon\ndisk_kib=\nend=yes\n") == Report(whole=True)
    assert report("disk_kib=99999999999999999999\n").disk_mib is None


def test_a_host_may_say_anything_and_little_of_it_is_repeated() -> None:
    said = "".join(f"{name}={'9' * 100_000}.{'9' * 100_000}\n" for name in ("kernel", "arch", "python", "owner", "os"))
    seen = report(said + "clock=" + "9" * 100_000 + "\n")
    assert seen.clock is None
    assert len("; ".join(map(str, lacks(seen, "me", "ours/1")))) < 3000

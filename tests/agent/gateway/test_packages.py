"""Installing nginx: commands and outcomes, with a runner that plays the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chalicelib.agent.gateway.packages import LUA, InstallError, Packages, run


class Machine:
    """Debian with or without systemd. What apt installs is there afterwards."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, systemd: bool = True, apt: bool = True
    ) -> None:
        self.bin, self.modules, self.systemd = folder / "bin", folder / "modules", folder / "systemd"
        self.mark = folder / "mark"
        for each in (self.bin, self.modules, *([self.systemd] if systemd else [])):
            each.mkdir()
        self.commands: list[str] = []
        self.fails: dict[str, tuple[int, str]] = {}  # by the command's first two words
        if apt:
            self.program("apt-get")
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setattr("chalicelib.agent.gateway.packages.PATHS", "")

    def program(self, name: str) -> None:
        (self.bin / name).write_text("#!/bin/sh\n")
        (self.bin / name).chmod(0o755)

    def run(self, command: list[str], more: dict[str, str]) -> tuple[int, str]:
        self.commands.append(
            " ".join(argument for argument in command[:2] + command[-1:] if not argument.startswith("-"))
        )
        failed = self.fails.get(" ".join(command[:2]))
        if failed is None and command[:2] == ["apt-get", "install"]:
            assert more["DEBIAN_FRONTEND"] == "noninteractive"
            self.program("nginx")
            (self.modules / LUA).touch()
        return failed or (0, "")

    def packages(self, root: bool = True) -> Packages:
        return Packages(str(self.mark), self.run, str(self.modules), str(self.systemd), root)


def test_debians_own_nginx_never_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    assert machine.packages().missing()
    machine.packages().install()
    assert machine.commands == [
        "systemctl mask nginx.service",
        "apt-get update",
        "apt-get install openssl",
        "systemctl unmask nginx.service",
        "systemctl disable nginx.service",
    ]
    assert not machine.packages().missing() and not machine.mark.exists()


def test_without_systemd_there_is_nothing_to_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch, systemd=False)
    machine.packages().install()
    assert machine.commands == ["apt-get update", "apt-get install openssl"]


def test_somebodys_nginx_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.program("nginx")
    assert machine.packages().missing(), "its Lua module is"
    machine.packages().install()
    assert machine.commands == ["apt-get update", "apt-get install openssl"]


def test_what_was_cut_off_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.fails["systemctl disable"] = (1, "no bus")
    with pytest.raises(InstallError, match="Debian's own nginx can't be disabled: no bus"):
        machine.packages().install()
    machine.fails.clear()
    assert machine.packages().missing(), "it would start with the next boot"
    machine.packages().install()
    assert machine.commands[-1] == "systemctl disable nginx.service" and not machine.packages().missing()


def test_what_apt_says_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.fails |= {"apt-get update": (100, "E: no network\n"), "apt-get install": (100, "\nE: no such package\n\n")}
    with pytest.raises(InstallError) as raised:
        machine.packages().install()
    assert str(raised.value).endswith("fails: E: no network; E: no such package")
    assert machine.commands[-1] == "systemctl unmask nginx.service"


@pytest.mark.parametrize(
    ("apt", "root", "message"), [(False, True, "has no apt-get"), (True, False, "sudo apt-get install")]
)
def test_who_cant_install_says_what_to_do(
    apt: bool, root: bool, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch, apt=apt)
    with pytest.raises(InstallError, match=message):
        machine.packages(root).install()
    assert machine.commands == []


def test_commands_run_with_what_they_need() -> None:
    assert run(["/bin/sh", "-c", "echo $ONE; exit 3"], {"ONE": "1"}) == (3, "1\n")
    assert run([os.devnull], {})[0] == 127

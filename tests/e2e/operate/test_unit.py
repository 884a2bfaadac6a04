"""The service that `dstack server install` writes: what systemd itself says of it, and what changes on a system."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from chalicelib.errors import Refused
from cli.commands import server_install
from cli.commands.server_install import ENVIRONMENT, UNIT, Machine, install_on, remove_from

PROGRAM, PYTHON = Path("/opt/dstack/bin/dstack-serverless"), Path("/usr/bin/python3")
EXPOSURE = 25  # of 100, by systemd's own measure; a service without a sandbox has 96


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A root with what systemd needs to look at a unit; its programs are this machine's."""
    for folder in ("etc/systemd/system", "usr/lib/systemd/system", "opt/dstack/bin"):
        (tmp_path / folder).mkdir(parents=True)
    program = tmp_path / PROGRAM.relative_to("/")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "usr/lib/systemd/system/multi-user.target").write_text("[Unit]\nDescription=Multi-User System\n")
    return Machine(tmp_path, server_install.run)


def analyze(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze here")
    return subprocess.run([program, *words], capture_output=True, text=True)


def test_it_is_installed_and_removed_and_the_settings_stay(machine: Machine) -> None:
    install_on(machine, PROGRAM, PYTHON)
    enabled = machine.root / "etc/systemd/system/multi-user.target.wants/dstack-server.service"
    assert enabled.is_symlink()
    assert "dstack-server:" in (machine.root / "etc/passwd").read_text()
    settings = machine.root / ENVIRONMENT
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    settings.write_text("DSTACK_SERVER_PORT=3100\n")
    install_on(machine, PROGRAM, PYTHON)
    assert settings.read_text() == "DSTACK_SERVER_PORT=3100\n"
    remove_from(machine)
    assert not enabled.is_symlink() and not (machine.root / UNIT).exists() and settings.exists()
    with pytest.raises(Refused, match="no server is installed"):
        remove_from(machine)


def test_systemd_finds_no_fault_in_it(machine: Machine) -> None:
    install_on(machine, PROGRAM, PYTHON)
    done = analyze(machine, "verify", f"--root={machine.root}", "--recursive-errors=no", "dstack-server.service")
    assert done.returncode == 0 and "dstack-server" not in done.stderr, done.stderr


def test_its_sandbox_is_as_tight_as_systemd_asks_for(machine: Machine) -> None:
    install_on(machine, PROGRAM, PYTHON)
    done = analyze(machine, "security", "--offline=true", f"--threshold={EXPOSURE}", f"{machine.root / UNIT}")
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_program_that_the_service_cant_see_is_refused(machine: Machine) -> None:
    for program, python in (
        (Path("/home/ada/venv/bin/dstack-serverless"), PYTHON),
        (PROGRAM, Path("/root/py/bin/python")),
    ):
        with pytest.raises(Refused, match="which the service doesn't see"):
            install_on(machine, program, python)
    for place in ("/opt/my programs", "/opt/100%u"):
        with pytest.raises(Refused, match="mean something else to systemd"):
            install_on(machine, Path(place) / PROGRAM.name, PYTHON)
    assert not (machine.root / UNIT).exists()


def test_no_second_copy_of_the_token_is_kept(machine: Machine) -> None:
    """A first start would add it to the client's file in the home that the service has."""
    install_on(machine, PROGRAM, PYTHON)
    assert "DSTACK_SERVER_ENTER_PROJECT=off" in (machine.root / UNIT).read_text()


def test_on_the_machine_itself_it_is_started_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Live(Machine):
        live = True  # type: ignore[assignment]

    def note(argv: Sequence[str]) -> None:
        asked.append(" ".join(argv))

    machine = Live(tmp_path, note)
    install_on(machine, PROGRAM, PYTHON)
    assert asked[-2:] == ["systemctl daemon-reload", "systemctl restart dstack-server"]
    remove_from(machine)
    assert asked[-3] == "systemctl stop dstack-server" and asked[-1] == "systemctl daemon-reload"


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"failed: .*nonsense"):
        server_install.run(["systemctl", f"--root={tmp_path}", "nonsense"])
    with pytest.raises(Refused, match="needs Linux with systemd"):
        server_install.run(["systemctl-of-another-system"])

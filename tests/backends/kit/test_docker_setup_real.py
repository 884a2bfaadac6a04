"""The script that installs Docker, on a machine whose commands only write down how they are called."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chalicelib.backends.kit import docker_setup

ALWAYS = ("apt-get", "curl", "gpg", "systemctl")


def calls(root: Path, *there: str, failing: str = "") -> list[str]:
    """What it calls where these commands are, too. It ends well, whatever fails."""
    places = {name: root / name.strip("/") for name in ("/var/log", "/usr/share/keyrings", "/etc/apt/sources.list.d")}
    script = docker_setup.SCRIPT
    for name, place in places.items():
        place.mkdir(parents=True)
        script = script.replace(f"{name}/", f"{place}/")
    (root / "bin").mkdir()
    for name in (*ALWAYS, *there):
        installs = (
            f'case "$*" in *toolkit*) cp {root}/bin/curl {root}/bin/nvidia-ctk;; esac\n' if name == "apt-get" else ""
        )
        stub = root / "bin" / name
        stub.write_text(f'#!/bin/sh\necho "{name} $*" >> {root}/calls\n{installs}exit {int(name == failing)}\n')
        stub.chmod(0o755)
    (root / "script").write_text(script)
    path = f"{root}/bin:{root}/tools"
    (root / "tools").mkdir()
    for name in ("cp", "echo"):
        (root / "tools" / name).symlink_to(f"/bin/{name}")
    done = subprocess.run(["/bin/sh", root / "script"], env={"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert ("dstack-prepare.log" in done.stderr) == bool(failing), done.stderr
    return (root / "calls").read_text().splitlines() if (root / "calls").exists() else []


def test_nothing_is_installed_where_all_is_there(tmp_path: Path) -> None:
    assert calls(tmp_path, "docker", "nvidia-smi", "nvidia-ctk") == []


def test_without_gpus_docker_is_enough(tmp_path: Path) -> None:
    assert calls(tmp_path) == ["apt-get update", "apt-get install -y docker.io"]


def test_docker_learns_to_use_gpus(tmp_path: Path) -> None:
    found = calls(tmp_path, "docker", "nvidia-smi")
    assert "apt-get install -y nvidia-container-toolkit" in found
    assert found[-1] == "systemctl restart docker"
    source = (tmp_path / "etc/apt/sources.list.d/nvidia-container-toolkit.list").read_text()
    assert source.startswith("deb [signed-by=") and source.endswith("/stable/deb/$(ARCH) /\n")


@pytest.mark.parametrize("failing", ["apt-get", "systemctl"])
def test_the_agent_starts_whatever_fails(tmp_path: Path, failing: str) -> None:
    assert calls(tmp_path, "docker", "nvidia-smi", failing=failing)

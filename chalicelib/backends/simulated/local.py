"""The simulated cloud on one computer: its machines are local processes, its state and script are in a folder."""

from __future__ import annotations

import time
from pathlib import Path

from chalicelib.backends.simulated import WIRE_NAME
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud, Launcher
from chalicelib.backends.simulated.launch import LocalLauncher
from chalicelib.backends.simulated.loops import LoopDevices
from chalicelib.backends.simulated.script import Script, ScriptFile
from chalicelib.backends.simulated.state import FolderResources
from chalicelib.domain.instants import SECOND, Micros


def local_cloud(folder: Path, server_url: str, program: Path, users: str = "", name: str = WIRE_NAME) -> FakeCloud:
    """A cloud whose machines are processes. `users`: the users that jobs run as, as on the agent's command line.
    `name`: the backend type that it stands in for."""
    launcher = LocalLauncher(folder / "machines", server_url, program, users)
    launcher.moved()
    return simulated_cloud(folder, launcher, name, hostname="localhost")


def simulated_cloud(folder: Path, launcher: Launcher, name: str, hostname: str = "") -> FakeCloud:
    """The server's simulated cloud. It restarts the machines that were running when this computer went down."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    script = ScriptFile(folder / "script.json", Script(boot=SECOND // 2, end=SECOND // 2))
    cloud = FakeCloud(
        _now,
        store=FolderResources(folder / "resources"),
        launcher=launcher,
        volumes=FolderResources(folder / "volumes"),
        devices=LoopDevices(folder / "images"),
        script=script.current,
        facts=FACTS.with_(name=name),
        hostname=hostname,
    )
    cloud.resume()
    return cloud


def _now() -> Micros:
    return time.time_ns() // 1000

"""The simulated cloud's machines as local processes: each runs the real agent, in its own folder.

A machine is a keeper process. It is the subreaper of everything that runs below it, so processes that daemonise or lose
their parent stay there, and ending the machine ends everything on it. It restarts a failed agent, as a real machine's
init would. It has its own session, so it outlives a killed server; a server that shuts down ends its machines. If the
machine's folder is deleted (with the data folder of a trial server, for instance), the keeper ends everything by
itself.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from chalicelib.backends.simulated.cloud import Boot
from chalicelib.backends.simulated.mounts import mounts, unmount
from chalicelib.domain.instants import SECOND

log = logging.getLogger(__name__)

KILLING = 5.0  # seconds until a killed process has left the process table

# argv: the machine's folder (which identifies the keeper), the delay, and the agent's command line.
_KEEPER = """
import ctypes, os, signal, subprocess, sys, time

def look(*_):
    if os.path.isdir(sys.argv[1]):
        return
    while True:  # what lost its parent hangs below us, so this comes to everybody
        with open("/proc/self/task/%d/children" % os.getpid()) as file:
            below = file.read().split()
        if not below:
            os._exit(0)
        for pid in below:
            os.kill(int(pid), signal.SIGKILL)
        os.wait()

try:
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
except (OSError, AttributeError):
    pass  # not Linux: what leaves its parent leaves the machine
signal.signal(signal.SIGALRM, look)
signal.setitimer(signal.ITIMER_REAL, 3.0, 3.0)
time.sleep(float(sys.argv[2]))
agent = subprocess.Popen(sys.argv[3:]).pid
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    if pid == agent and status:
        time.sleep(1.0)
        agent = subprocess.Popen(sys.argv[3:]).pid
"""


class LocalLauncher:
    def __init__(self, folder: Path, server_url: str, program: Path, users: str = "") -> None:
        self._folder, self._server_url, self._program, self._users = folder, server_url, program, users

    def launch(self, boot: Boot) -> None:
        home = self._folder / boot.machine_id
        if self._keeper(home) is not None:
            return
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        server_url, instance_id, token = boot.settings
        _write(home / "token", token.encode())
        _write(home / "facts.json", orjson.dumps(_facts(boot)))
        command = [sys.executable, str(self._program), "--server", server_url or self._server_url]
        command += ["--data", str(home / "data"), "--instance", instance_id, "--token-file", str(home / "token")]
        command += ["--runtime", "process", *(["--users", self._users] if self._users else [])]
        with (home / "agent.log").open("ab") as output:
            keeper = subprocess.Popen(
                [sys.executable, "-c", _KEEPER, str(home), str(boot.delay / SECOND), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "DSTACK_AGENT_FACTS": str(home / "facts.json")},
                start_new_session=True,
                cwd=home,
            )
        _write(home / "keeper.pid", str(keeper.pid).encode())

    def moved(self) -> None:
        """Gives every machine the server's address, which may have changed with a restart."""
        for data in self._folder.glob("*/data"):
            _write(data / "server", self._server_url.encode())

    def kill(self, machine_id: str) -> None:
        home = self._folder / machine_id
        keeper = self._keeper(home)
        if keeper is not None:
            _send(keeper, signal.SIGSTOP)  # or it would restart the agent
            deadline = time.monotonic() + KILLING
            while (below := _below(keeper)) and time.monotonic() < deadline:
                for pid in below:
                    _send(pid, signal.SIGKILL)
            _send(keeper, signal.SIGKILL)
            _reap(keeper)
        if (home / "data" / "gateway.json").exists():
            self._clear(home / "data")
        if _unmounted(home):  # a volume that is still mounted there would be emptied
            shutil.rmtree(home, ignore_errors=True)

    def _clear(self, data: Path) -> None:
        """Deletes a gateway's folder, which is elsewhere on this computer."""
        command = [sys.executable, str(self._program), "clear", "--data", str(data), "--runtime", "process"]
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            log.warning("the gateway of %s leaves something behind: %s", data, done.stderr.strip())

    def _keeper(self, home: Path) -> int | None:
        """The machine's keeper, if it is alive. A process id alone isn't proof, because it may have been reused."""
        try:
            pid = int((home / "keeper.pid").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(home).encode() in words else None


def _facts(boot: Boot) -> dict[str, Any]:
    """The facts that the agent must report instead of this computer's."""
    has = boot.resources
    return {
        "cpus": has.cpus,
        "memory_mib": has.memory_mib,
        "disk_mib": has.disk.size_mib,
        "arch": has.cpu_arch or "x86",
        "hostname": "localhost",  # it is a process of this computer
        "addresses": [boot.internal_ip],
        "gpus": [
            {"name": gpu.name, "memory_mib": gpu.memory_mib, "vendor": gpu.vendor, "driver": "simulated"}
            for gpu in has.gpus
        ],
    }


def _below(root: int) -> list[int]:
    """The living descendants of a process."""
    children: dict[int, list[int]] = {}
    dead = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it ended while we looked
        children.setdefault(int(parent), []).append(int(entry.name))
        if state in (b"Z", b"X"):
            dead.add(int(entry.name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return [pid for pid in found if pid not in dead]


def _unmounted(home: Path) -> bool:
    """Unmounts everything below `home`, the innermost first. False if something stays mounted."""
    below = [place for place in mounts() if Path(place.path).is_relative_to(home.resolve())]
    return all([unmount(place) for place in sorted(below, key=lambda place: len(place.path), reverse=True)])


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return  # an earlier server's child: init's to reap


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)

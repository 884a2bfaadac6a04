"""Leaving a fleet that the machine joined by itself: nobody else can clear it.

It is started by the agent, once the server no longer wants the machine, or by a person. The tasks end first, then the
server hears that the machine is cleared, and what would start the agent again goes last. So after a crash at any point
the agent comes back, hears the same, and starts over.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Callable, Dict, Optional

from ..gateway import role as gateway_role
from ..kernel.task_runtime import TaskRuntime
from ..kernel.tasks import read_text, take_lock
from . import build, clearing
from .roster import Roster

HOME = "/var/lib/dstack"
UNIT_FOLDER = "/etc/systemd/system"
PATIENCE = 60.0  # seconds for the agent to end, and for the server to answer

Runtimes = Callable[[str, argparse.Namespace], Dict[str, TaskRuntime]]


def start(data: str) -> None:
    """Leave in a process of its own: this one ends now."""
    command = [sys.executable, os.path.join(data, "agent.pyz"), "leave", "--data", data]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, cwd="/")


def systemctl(*arguments: str) -> None:
    """A unit that isn't there, or isn't failed, is as it should be."""
    subprocess.run(
        ["systemctl", "--quiet", *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def leave(
    options: argparse.Namespace,
    runtimes: Runtimes,
    control: Callable[..., None] = systemctl,
    units: str = UNIT_FOLDER,
    patience: float = PATIENCE,
) -> int:
    data = os.path.abspath(options.data or HOME)
    unit = (read_text(os.path.join(data, "unit")) or "").strip()
    if not unit:
        print("%s isn't the folder of an agent that joined by itself" % data, file=sys.stderr)
        return 1
    if os.geteuid() != 0:
        print("only root can clear this machine: use sudo", file=sys.stderr)
        return 1
    usable = runtimes(data, options)
    roster = Roster(data, usable, sorted(usable)[0], lambda: build.lay_out(data), options.docker_socket, options.users)
    busy = "" if options.force else _busy(data, roster)
    if busy:
        print(busy, file=sys.stderr)
        return 1
    control("stop", unit)
    lock = _lock(os.path.join(data, "lock"), patience)
    if lock is None:
        print("an agent still runs on %s" % data, file=sys.stderr)
        return 1
    problem = clearing.end_tasks(data, usable, roster) or _told_or_forced(data, options.force, patience)
    if problem:
        print("%s; nothing else was removed" % problem, file=sys.stderr)
        os.close(lock)  # the agent that starts now wants it
        control("start", unit)
        return 1
    _remove(data, unit, control, units)
    print("This machine has left its fleet; nothing of the agent is left.")
    return 0


def _busy(data: str, roster: Roster) -> str:
    """What would end if the machine left now; empty if nothing."""
    running = [task for task in roster.tasks() if not roster.ended(task)]
    if running:
        return "jobs still run here (%d): stop them first (dstack stop), or end them with --force" % len(running)
    if gateway_role.carries(data):
        return "a gateway runs here: delete it first (dstack gateway delete), or end it with --force"
    return ""


def _told_or_forced(data: str, force: bool, patience: float) -> str:
    problem = tell(data, 0.0 if force else patience)
    if problem and force:
        print("%s; it still lists this machine" % problem, file=sys.stderr)
        return ""
    return "%s (--force leaves without it)" % problem if problem else ""


def tell(data: str, patience: float, every: float = 2.0) -> str:
    """Tell the server that the machine is cleared. Returns why it couldn't be told; empty if it knows."""
    server = (read_text(os.path.join(data, "server")) or "").strip().rstrip("/")
    credential = (read_text(os.path.join(data, "credential")) or read_text(os.path.join(data, "token")) or "").strip()
    instance = (read_text(os.path.join(data, "instance")) or "").strip()
    headers = {"Authorization": "Bearer " + credential, "Content-Type": "application/json"}
    body = json.dumps({"instance": instance}).encode()
    deadline = time.monotonic() + patience
    while True:
        problem = _notify(urllib.request.Request(server + "/agent/left", body, headers, method="POST"))
        if not problem:
            return ""
        if time.monotonic() >= deadline:
            return "the server at %s can't be notified (%s)" % (server, problem)
        time.sleep(min(every, patience))


def _notify(request: urllib.request.Request) -> str:
    try:
        urllib.request.urlopen(request, timeout=15.0).close()
    except urllib.error.HTTPError as error:
        # It knows nothing of this machine, so there is nothing to tell.
        return "" if error.code in (401, 403, 404) else "HTTP %d" % error.code
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return ""


def _lock(path: str, patience: float) -> Optional[int]:
    """The agent's lock, once the agent has ended."""
    deadline = time.monotonic() + patience
    while True:
        lock = take_lock(path)
        if lock is not None or time.monotonic() > deadline:
            return lock
        time.sleep(0.1)


def _remove(data: str, unit: str, control: Callable[..., None], units: str) -> None:
    clearing.wipe(data)
    control("disable", unit)
    path = os.path.join(units, os.path.basename(unit))
    if os.path.exists(path):
        os.unlink(path)
    control("daemon-reload")
    control("reset-failed", unit)
    with contextlib.suppress(OSError):  # one that something is mounted at stays, empty
        os.rmdir(data)

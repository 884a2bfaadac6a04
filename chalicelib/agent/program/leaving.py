"""Leaving a fleet that the machine joined by itself, which the server can't clear from outside.

The agent starts it when the server no longer wants the machine, or a person does. First the tasks end, then the server
is notified that the machine is cleared, and last the agent's unit is deleted. So after a crash at any point the agent
starts again, gets the same answer from the server, and leaves again.
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
    """Run `leave` in a process of its own, because this one is about to end."""
    command = [sys.executable, os.path.join(data, "agent.pyz"), "leave", "--data", data]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, cwd="/")


def systemctl(*arguments: str) -> None:
    """Run systemctl, ignoring its status: a unit that doesn't exist or hasn't failed needs nothing."""
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
    roster = Roster(data, usable, sorted(usable)[0], lambda: build.unpack(data), options.docker_socket, options.users)
    busy = "" if options.force else _busy(data, roster)
    if busy:
        print(busy, file=sys.stderr)
        return 1
    control("stop", unit)
    lock = _lock(os.path.join(data, "lock"), patience)
    if lock is None:
        print("an agent still runs on %s" % data, file=sys.stderr)
        return 1
    problem = clearing.end_tasks(data, usable, roster) or _notify_or_force(data, options.force, patience)
    if problem:
        print("%s; nothing else was removed" % problem, file=sys.stderr)
        os.close(lock)  # the agent that starts now takes it
        control("start", unit)
        return 1
    _remove(data, unit, control, units)
    print("This machine has left its fleet; nothing of the agent is left.")
    return 0


def _busy(data: str, roster: Roster) -> str:
    """Why the machine shouldn't leave now: its jobs or its gateway; empty if there are none."""
    running = [task for task in roster.tasks() if not roster.ended(task)]
    if running:
        return "jobs still run here (%d): stop them first (dstack stop), or end them with --force" % len(running)
    if gateway_role.carries(data):
        return "a gateway runs here: delete it first (dstack gateway delete), or end it with --force"
    return ""


def _notify_or_force(data: str, force: bool, patience: float) -> str:
    problem = notify_server(data, 0.0 if force else patience)
    if problem and force:
        print("%s; it still lists this machine" % problem, file=sys.stderr)
        return ""
    return "%s (--force leaves without it)" % problem if problem else ""


def notify_server(data: str, patience: float, every: float = 2.0) -> str:
    """Notify the server that the machine is cleared. Returns why that failed; empty if the server knows."""
    server = (read_text(os.path.join(data, "server")) or "").strip().rstrip("/")
    credential = (read_text(os.path.join(data, "credential")) or read_text(os.path.join(data, "token")) or "").strip()
    instance = (read_text(os.path.join(data, "instance")) or "").strip()
    headers = {"Authorization": "Bearer " + credential, "Content-Type": "application/json"}
    body = json.dumps({"instance": instance}).encode()
    deadline = time.monotonic() + patience
    while True:
        problem = _post(urllib.request.Request(server + "/agent/left", body, headers, method="POST"))
        if not problem:
            return ""
        if time.monotonic() >= deadline:
            return "the server at %s can't be notified (%s)" % (server, problem)
        time.sleep(min(every, patience))


def _post(request: urllib.request.Request) -> str:
    try:
        urllib.request.urlopen(request, timeout=15.0).close()
    except urllib.error.HTTPError as error:
        # A server that doesn't know this machine needs no notification.
        return "" if error.code in (401, 403, 404) else "HTTP %d" % error.code
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return ""


def _lock(path: str, patience: float) -> Optional[int]:
    """Wait for the agent to end and take its lock; None if it still runs after `patience` seconds."""
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
    with contextlib.suppress(OSError):  # a mount point stays, empty
        os.rmdir(data)

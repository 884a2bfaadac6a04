"""Processes of `dstack` that begin as copies of one that has imported what they need.

    python -m tests.harness.fork_server DESCRIPTOR PADDING

Of a server's start three quarters, and of most other commands nearly all, is Python that imports the same modules once
more. Each message on the socket asks for one process, `{"argv", "cwd", "env", "session", "seconds"}`, and brings its
standard input, its output, and a socket that is told its number and, at its end, its status and its seconds of CPU.
Everything else about a process is its own: its session, its signals, its environment, what `/proc` shows of it, and its
end, at which Python cleans up as always.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LARGEST = 1 << 17  # bytes of a message
ARGUMENTS, ENVIRONMENT = 45, 47  # where the fields of /proc/self/stat begin that say where in memory both are
LATER = (  # what a server imports once it starts
    "chalicelib.backends.simulated.local",
    "chalicelib.hosts.tunnels",
    "chalicelib.identity.openid",
    "chalicelib.usecases.runs.rule_actions",
)


def imported() -> None:
    from chalicelib.agent.program.build import build
    from chalicelib.api.routes import load_handlers

    importlib.import_module("chalicelib.runtime.serve")
    commands = importlib.import_module("cli.commands")
    for name in (*(module.name for module in pkgutil.iter_modules(commands.__path__, "cli.commands.")), *LATER):
        importlib.import_module(name)
    load_handlers()
    build()


def main() -> int:
    gc.disable()
    imported()
    gc.enable()
    gc.freeze()  # a collection in a copy would copy all of these pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for the processes aren't waited for
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, LARGEST, 3)
        if not message:
            return 0
        if os.fork() == 0:
            control.close()
            return become(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def become(job: dict[str, Any], source: int, sink: int, report: int) -> int:
    """In the copy that waits for the process, and in the process itself."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        os.close(source)
        os.close(sink)
        with socket.socket(fileno=report) as there:
            there.sendall(b"%d\n" % child)
            _, status, used = os.wait4(child, 0)
            there.sendall(b"%d %f\n" % (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
        os._exit(0)
    os.close(report)
    if job["session"]:
        os.setsid()
    signal.alarm(job["seconds"])
    _connect(source, sink)
    _show(ARGUMENTS, [sys.executable, "-m", "cli.main", *job["argv"]])
    os.environ.clear()
    os.environ.update(job["env"])
    _show(ENVIRONMENT, [f"{name}={value}" for name, value in job["env"].items()])
    time.tzset()
    tempfile.tempdir = None
    os.chdir(job["cwd"])
    cli = importlib.import_module("cli.main")
    sys.argv = [str(Path(str(cli.__file__))), *job["argv"]]
    cli.main()
    return 0


def _connect(source: int, sink: int) -> None:
    for descriptor, number in ((source, 0), (sink, 1), (sink, 2)):
        os.dup2(descriptor, number)
    os.close(source)
    os.close(sink)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # type: ignore[misc] # noqa: SIM115


def _show(field: int, words: list[str]) -> None:
    """What `/proc` shows is read where the kernel put it when the process began, so that is overwritten."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[field]), int(fields[field + 1])
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    assert len(text) < end - start, "start this with a longer PADDING"
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main())

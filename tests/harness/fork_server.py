"""Processes of `dstack` that begin as copies of one that has imported what they need.

    python -m tests.harness.fork_server DESCRIPTOR PADDING [PROGRAM]

`PROGRAM`: `dstack` as pip installed it, if it isn't this checkout's; by the Python of its environment, which finds
nothing of the checkout but this file.

Of a server's start three quarters, and of most other commands nearly all, is Python that imports the same modules once
more. Each message on the socket asks for one process, `{"argv", "cwd", "env", "session", "seconds", "network",
"module"}`, and brings its standard input, its output, its errors, and a socket that is told its number and, at its end,
its status and its seconds of CPU.
Everything else about a process is its own: its session, its signals, its environment, what `/proc` shows of it, and its
end, but for giving back its memory.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

LARGEST = 1 << 17  # bytes of a message
CLONE_NEWNET = 0x40000000
PROGRAM = sys.argv[3:]
CLI = "cli.main"
ARGUMENTS, ENVIRONMENT = 45, 47  # where the fields of /proc/self/stat begin that say where in memory both are
INSTALLED = {"chalicelib": "dstack_serverless.plane", "cli": "dstack_serverless.cli"}  # where pip puts them
LATER = (  # what a server imports once it starts
    "chalicelib.agent.runtimes.docker_client",
    "chalicelib.agent.runtimes.users",
    "chalicelib.backends.kit.rest",
    "chalicelib.backends.simulated.local",
    "chalicelib.engine.erase_unused",
    "chalicelib.engine.execute",
    "chalicelib.engine.reconcile",
    "chalicelib.engine.schedule_turns",
    "chalicelib.engine.subscriptions",
    "chalicelib.engine.workflows",
    "chalicelib.hosts.head_relays",
    "chalicelib.hosts.host_steps",
    "chalicelib.hosts.tunnels",
    "chalicelib.identity.acme",
    "chalicelib.identity.openid",
    "chalicelib.registries.client",
    "chalicelib.runtime.accounts",
    "chalicelib.runtime.subscribers",
    "chalicelib.store.blobs",
    "chalicelib.store.log_files",
    "chalicelib.store.sqlite",
    "chalicelib.usecases.operator.server_config",
    "chalicelib.usecases.runs.rule_actions",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "yaml",
)


def imported() -> None:
    commands = module("cli.commands")
    for each in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(each.name)
    if find_spec("uvicorn") is None:
        return  # a client alone
    for name in ("chalicelib.runtime.serve", *LATER):
        module(name)
    module("chalicelib.api.routes").load_handlers()
    module("chalicelib.agent.program.build").build()


def module(name: str) -> Any:
    """By its name in the checkout."""
    top, dot, inner = name.partition(".")
    return importlib.import_module(f"{INSTALLED.get(top, top) if PROGRAM else top}{dot}{inner}")


def main() -> int:
    gc.disable()
    imported()
    gc.enable()
    gc.freeze()  # a collection in a copy would copy all of these pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for the processes aren't waited for
    control = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, LARGEST, 4)
        if not message:
            return 0
        if os.fork() == 0:
            control.close()
            return become(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def become(job: dict[str, Any], source: int, sink: int, errors: int, report: int) -> int:
    """In the copy that waits for the process, and in the process itself."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        for descriptor in (source, sink, errors):
            os.close(descriptor)
        with socket.socket(fileno=report) as there:
            there.sendall(b"%d\n" % child)
            _, status, used = os.wait4(child, 0)
            there.sendall(b"%d %f\n" % (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
        os._exit(0)
    os.close(report)
    if job["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the suite in the background ignores it
    signal.alarm(job["seconds"])
    if job["network"]:
        _enter(job["network"])
    _connect(source, sink, errors)
    _show(ARGUMENTS, [sys.executable, *(PROGRAM or ["-m", job["module"]]), *job["argv"]])
    os.environ.clear()
    os.environ.update(job["env"])
    _show(ENVIRONMENT, [f"{name}={value}" for name, value in job["env"].items()])
    time.tzset()
    tempfile.tempdir = None
    os.chdir(job["cwd"])
    if PROGRAM:
        sys.argv = [*PROGRAM, *job["argv"]]
        runpy.run_path(PROGRAM[0], run_name="__main__")
        return 0
    if job["module"] != CLI:  # another way to run what is imported
        sys.argv = ["", *job["argv"]]
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
        return 0
    cli = module(CLI)
    sys.argv = [str(Path(str(cli.__file__))), *job["argv"]]
    cli.main()
    return 0


def _enter(network: str) -> None:
    with Path(network).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"can't enter {network}")


def _connect(source: int, sink: int, errors: int) -> None:
    for descriptor, number in ((source, 0), (sink, 1), (errors, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
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


def finish(run: Callable[[], int]) -> NoReturn:
    """End this process with the status of `run`, after all that a Python does at its end but for giving back memory:
    that would touch, and so copy, every page that it shares with the process that it is a copy of."""
    status = 1
    try:
        status = run()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(bool(end.code))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # whoever read it has gone
            status = 120
    os._exit(status)


if __name__ == "__main__":
    finish(main)

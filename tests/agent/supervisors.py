"""Supervisors that begin as copies of one process that has imported the agent, which is half of their CPU.

    python -I -S tests/agent/supervisors.py DESCRIPTOR

Everything else about one is its own: its session, its folder, its environment, its signals and its end. Those of real
agents, which whole runs and `test_agent` start, begin as programs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from chalicelib.agent.program.roster import Roster

LARGEST = 1 << 18  # bytes of a message
# By the process that started it, for it doesn't survive a fork.
_ORIGINS: dict[int, tuple[socket.socket, subprocess.Popen[bytes]]] = {}


class Launched(subprocess.Popen[bytes]):
    """A process that has ended with this status."""

    def __init__(self, status: int) -> None:
        self.returncode = status
        self._child_created = False

    def poll(self) -> int:
        return int(self.returncode)


class ForkingRoster(Roster):
    def start(self, path: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        job = {"argv": [self.program(), "supervise", path], "cwd": str(Path.cwd()), "env": dict(os.environ)}
        origin = _origin()
        socket.send_fds(origin, [json.dumps(job).encode()], [log.fileno()])
        return Launched(origin.recv(1)[0])


def _origin() -> socket.socket:
    if os.getpid() not in _ORIGINS:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-I", "-S", __file__, str(theirs.fileno())]
            made = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True)
        _ORIGINS[os.getpid()] = ours, made
    return _ORIGINS[os.getpid()][0]


def serve(control: socket.socket) -> None:
    from chalicelib.agent.kernel.lazy import load_all
    from chalicelib.agent.program import main, supervisor
    from chalicelib.agent.runtimes import docker, inside, process

    assert supervisor and docker and inside and process
    load_all()
    gc.set_threshold(10_000)  # as the program has it
    gc.freeze()
    while True:
        message, (*descriptors,), _, _ = socket.recv_fds(control, LARGEST, 1)
        if not message:
            return
        child = os.fork()
        if not child:
            control.close()
            os._exit(become(json.loads(message), descriptors[0], main.main))
        os.close(descriptors[0])
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        control.send(bytes([abs(status)]))


def become(job: dict[str, Any], log: int, main: Any) -> int:
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv = job["argv"]
    try:
        return int(main(sys.argv[1:]))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        return 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)

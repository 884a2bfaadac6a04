"""A session in a container, through the engine's exec: with the container's user, environment, limits and terminal.

One poll passes bytes on in both directions, so that a session which prints without reading, or reads without printing,
never blocks itself.
"""

from __future__ import annotations

import fcntl
import functools
import os
import select
import signal
import socket
import struct
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from ..kernel import namespaces, process_tree
from ..kernel.tasks import TaskFolder
from ..runtimes import docker_repositories
from ..runtimes.docker_client import DockerClient, DockerError, container_name
from . import sftp
from .protocol import CUT, SFTP

if TYPE_CHECKING:
    from ..kernel.tasks import Launch

BUFFER = 256 * 1024
PASSED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
EXIT_SECONDS = 10.0  # until the engine knows the exit status
FILE_RIGHTS = 0b11111  # CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID: those that a file server needs
FAILED, NOT_FOUND = 255, 127
SHELL = 'if [ -x /bin/bash ]; then exec /bin/bash; fi; exec "${SHELL:-/bin/sh}"'


def run(folder: TaskFolder, launch: Launch, command: Optional[str], passed_variables: Dict[str, str]) -> int:
    engine, name = DockerClient(launch["socket"]), container_name(folder.task)
    try:
        if command == SFTP:
            return serve_files(engine, name, folder.state())
        return ContainerSession(engine, name, launch["spec"].get("shell") or "/bin/sh", command, passed_variables).run()
    except DockerError as problem:
        print("dstack: %s" % problem.message.strip(), file=sys.stderr)
        return FAILED


# Files ----------------------------------------------------------------------------------------------------------------


def serve_files(engine: DockerClient, name: str, state: Dict[str, Any]) -> int:
    """Serve the container's files by SFTP, with the rights of its user. The image needs no SFTP server."""
    pid = process_of(engine, name)
    uid, gid = docker_repositories.owner_of(engine, name, state.get("username") or "root")
    rights = capabilities(pid)
    time.localtime()  # loads the time zone, whose file isn't in the container
    server = sftp.SftpServer()
    held = namespaces.open_namespaces(pid, ["user", "mnt"])
    if process_of(engine, name) != pid or namespaces.is_current(held["mnt"], "mnt"):
        raise OSError("the job has ended")  # and its pid may have been reused by a process of the machine
    namespaces.enter_open(held)
    sys.meta_path.clear()  # prevents the import of modules, which would be the container's
    become(uid, gid, rights & FILE_RIGHTS)
    working_dir = state.get("working_dir") or "/"
    os.chdir(working_dir if os.path.isdir(working_dir) else "/")
    sftp.serve(server, 0, 1)
    return 0


def process_of(engine: DockerClient, name: str) -> int:
    found = engine.container(name)
    if found is None or not found["State"]["Running"]:
        raise OSError("the job has ended")
    return int(found["State"]["Pid"])


def become(uid: int, gid: int, rights: int) -> None:
    """Become a user of this process's user namespace. `rights`: the capabilities that its root keeps."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)  # even for root, which may be another in a user namespace
    if not uid:
        namespaces.limit_capabilities(rights)
    process_tree.prctl(process_tree.PR_SET_NO_NEW_PRIVS)
    os.umask(0o022)


def capabilities(pid: int) -> int:
    """The capability bounding set of a process."""
    with open("/proc/%d/status" % pid) as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapBnd")), 0)


# A shell or a command -------------------------------------------------------------------------------------------------


class ContainerSession:
    def __init__(
        self, engine: DockerClient, name: str, shell: str, command: Optional[str], passed_variables: Dict[str, str]
    ) -> None:
        self._engine, self._tty, self._cut = engine, os.isatty(0), False
        argv = ["/bin/sh", "-c", SHELL] if command is None else [shell, "-c", command]
        body = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": self._tty,
            "Cmd": argv,
            "Env": ["%s=%s" % item for item in passed_variables.items()],
        }
        self._id: str = engine.call("POST", "/containers/%s/exec" % name, body=body)["Id"]

    def run(self) -> int:
        signals, wakeup = os.pipe()
        for fd in (signals, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGWINCH, signal.SIGHUP, CUT, *PASSED_SIGNALS):
            signal.signal(number, lambda *_: None)
        if self._tty:
            tty.setraw(0, termios.TCSANOW)  # without dropping typed input; the container's terminal processes it
        upgrade = {"Upgrade": "tcp", "Connection": "Upgrade"}
        start = {"Detach": False, "Tty": self._tty}
        sock, first = self._engine.stream("POST", "/exec/%s/start" % self._id, {}, upgrade, body=start)
        self._resize()
        pump = Pump(0, 1, 2, sock, first, self._tty, signals, self._signalled)
        if pump.run():
            return self._exit_status()
        self._send(
            signal.SIGKILL if self._cut or CUT in _pending_signals(signals) else signal.SIGHUP
        )  # the client has gone
        return FAILED

    def _signalled(self, numbers: bytes) -> None:
        for number in set(numbers):
            if number == signal.SIGWINCH:
                self._resize()
            elif number in (signal.SIGHUP, CUT):
                self._cut = CUT in numbers
                raise HungUp()
            elif number in PASSED_SIGNALS:
                self._send(number)

    def _resize(self) -> None:
        if self._tty:
            rows, columns = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))[:2]
            if rows and columns:
                self._try("POST", "/exec/%s/resize" % self._id, {"h": rows, "w": columns})

    def _send(self, number: int) -> None:
        found = self._try("GET", "/exec/%s/json" % self._id) or {}
        if found.get("Running") and found.get("Pid"):
            pids = process_tree.stopped(found["Pid"]) if number == signal.SIGKILL else [found["Pid"]]
            process_tree.send(pids, number)

    def _try(self, method: str, path: str, query: Optional[Dict[str, Any]] = None) -> Any:
        try:
            return self._engine.call(method, path, query)
        except DockerError:
            return None  # the command has just ended, or the engine is restarting; the session goes on

    def _exit_status(self) -> int:
        until = time.monotonic() + EXIT_SECONDS
        while time.monotonic() < until:
            found = self._engine.call("GET", "/exec/%s/json" % self._id)
            if not found["Running"]:
                return FAILED if found["ExitCode"] is None else int(found["ExitCode"])
            time.sleep(0.02)
        return FAILED


def _pending_signals(fd: int) -> bytes:
    """The numbers of signals that haven't been handled yet."""
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


class HungUp(Exception):
    """The client has disconnected."""


class Pump:
    """Passes bytes on between a session's descriptors and the engine's connection. Without a terminal, the engine sends
    standard output and errors as frames: a head of 8 bytes with the kind and the length, then the bytes."""

    def __init__(
        self,
        stdin: int,
        stdout: int,
        stderr: int,
        sock: socket.socket,
        first: bytes,
        raw: bool,
        signals: int = -1,
        signalled: Callable[[bytes], None] = lambda numbers: None,
    ) -> None:
        self._stdin, self._sock, self._raw = stdin, sock, raw
        self._signals, self._signalled = signals, signalled
        self._stdout, self._stderr = stdout, stderr
        self._input = bytearray()  # from the client, not sent to the engine yet
        self._received = bytearray(first)  # from the engine, not split into frames yet
        self._target, self._remaining = stdout, 0  # of the current frame: its descriptor, bytes to come
        self._output: Dict[int, bytearray] = {stdout: bytearray(), stderr: bytearray()}
        self._reading, self._open, self._shut = True, True, False
        for fd in (stdin, stdout, stderr):
            os.set_blocking(fd, False)
        sock.setblocking(False)

    def run(self) -> bool:
        """True when the command has ended and all its output is passed on; False if the client disconnected first."""
        self._split_frames()
        try:
            while self._open or any(self._output.values()):
                self._pass_on(self._ready())
        except (OSError, HungUp):  # the output can't be written
            return False
        finally:
            self._sock.close()
        return True

    def _full(self) -> bool:
        return sum(len(part) for part in self._output.values()) >= BUFFER

    def _ready(self) -> Dict[int, int]:
        poll = select.poll()
        if self._signals >= 0:
            poll.register(self._signals, select.POLLIN)
        if self._reading and len(self._input) < BUFFER:
            poll.register(self._stdin, select.POLLIN)
        if self._open:
            events = 0 if self._full() else select.POLLIN
            events |= select.POLLOUT if self._input else 0
            if events:
                poll.register(self._sock.fileno(), events)
        for fd, waiting in self._output.items():
            poll.register(fd, select.POLLOUT if waiting else 0)  # without events, poll still reports a closed reader
        return dict(poll.poll())

    def _pass_on(self, ready: Dict[int, int]) -> None:
        if self._signals in ready:
            self._signalled(os.read(self._signals, 4096))
        for fd, waiting in self._output.items():
            if waiting and fd in ready:
                del waiting[: _written(functools.partial(os.write, fd, waiting))]
            elif ready.get(fd, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL):  # a pipe, or a socket
                raise HungUp()
        if self._stdin in ready:
            self._read_client()
        if self._open and self._sock.fileno() in ready:
            self._exchange(ready[self._sock.fileno()])

    def _read_client(self) -> None:
        try:
            part = os.read(self._stdin, 65536)
        except BlockingIOError:
            return
        except OSError:
            part = b""  # the terminal was hung up
            if self._raw:
                raise HungUp() from None
        self._reading = bool(part)
        self._input += part
        self._shut_input_at_end()

    def _exchange(self, events: int) -> None:
        if self._input and events & (select.POLLOUT | select.POLLERR | select.POLLHUP):
            try:
                del self._input[: _written(lambda: self._sock.send(self._input))]
            except OSError:  # the command has closed its input; its output is still passed on
                self._input.clear()
                self._reading = False
            self._shut_input_at_end()
        if events & (select.POLLIN | select.POLLERR | select.POLLHUP) and not self._full():
            try:
                part = self._sock.recv(65536)
            except BlockingIOError:
                return
            except ConnectionError:
                part = b""
            self._open = bool(part)
            self._received += part
            self._split_frames()

    def _shut_input_at_end(self) -> None:
        if not self._reading and not self._input and not self._shut:
            self._shut = True
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                return  # the command has ended

    def _split_frames(self) -> None:
        """Move received bytes to the outputs, even of an incomplete frame, which may be larger than any buffer."""
        if self._raw:
            self._remaining = len(self._received)
        while self._received:
            if not self._remaining:
                if len(self._received) < 8:
                    return
                self._target = self._stderr if self._received[0] == 2 else self._stdout
                self._remaining = int.from_bytes(self._received[4:8], "big")
                del self._received[:8]
            part = self._received[: self._remaining]
            self._output[self._target] += part
            self._remaining -= len(part)
            del self._received[: len(part)]


def _written(write: Callable[[], int]) -> int:
    try:
        return write()
    except BlockingIOError:
        return 0

"""A session in a container, by the engine's exec: it has the container's user, environment, limits and terminal.

Bytes are passed on both ways by one poll: a session that prints without reading, or reads without printing, never waits
for itself.
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
from typing import Any, Callable, Dict, Optional

from ..kernel import namespaces, process_tree
from ..kernel.tasks import TaskFolder
from ..runtimes import docker_repositories
from ..runtimes.docker_client import DockerClient, DockerError, container_name
from . import sftp
from .protocol import CUT, SFTP

BUFFER = 256 * 1024
PASSED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
EXIT_SECONDS = 10.0  # until the engine knows the exit status
FILE_RIGHTS = 0b11111  # CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID: those that a file server needs
FAILED, NOT_FOUND = 255, 127
SHELL = 'if [ -x /bin/bash ]; then exec /bin/bash; fi; exec "${SHELL:-/bin/sh}"'


def run(folder: TaskFolder, launch: Dict[str, Any], command: Optional[str], passed_on: Dict[str, str]) -> int:
    engine, name = DockerClient(launch["socket"]), container_name(folder.task)
    try:
        if command == SFTP:
            return serve_files(engine, name, folder.state())
        return ContainerSession(engine, name, launch["spec"].get("shell") or "/bin/sh", command, passed_on).run()
    except DockerError as problem:
        print("dstack: %s" % problem.message.strip(), file=sys.stderr)
        return FAILED


# Files ----------------------------------------------------------------------------------------------------------------


def serve_files(engine: DockerClient, name: str, state: Dict[str, Any]) -> int:
    """SFTP with the rights of the container's user, among the container's files. Its image need not have a server."""
    pid = process_of(engine, name)
    uid, gid = docker_repositories.owner_of(engine, name, state.get("username") or "root")
    rights = capabilities(pid)
    time.localtime()  # reads the time zone's file before it is out of reach
    server = sftp.SftpServer()
    held = namespaces.open_namespaces(pid, ["user", "mnt"])
    if process_of(engine, name) != pid or namespaces.is_current(held["mnt"], "mnt"):
        raise OSError("the job has ended")  # and its number may be that of a process of the machine by now
    namespaces.enter_open(held)
    sys.meta_path.clear()  # from here on modules would be the container's: whatever isn't loaded stays so
    become(uid, gid, rights & FILE_RIGHTS)
    where = state.get("working_dir") or "/"
    os.chdir(where if os.path.isdir(where) else "/")
    sftp.serve(server, 0, 1)
    return 0


def process_of(engine: DockerClient, name: str) -> int:
    found = engine.container(name)
    if found is None or not found["State"]["Running"]:
        raise OSError("the job has ended")
    return int(found["State"]["Pid"])


def become(uid: int, gid: int, rights: int) -> None:
    """A user of the user namespace that this process is in. `rights`: the capabilities that its root keeps."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)  # root, too: in a namespace of its own it is another than the machine's
    if not uid:
        namespaces.limit_capabilities(rights)
    process_tree.prctl(process_tree.PR_SET_NO_NEW_PRIVS)
    os.umask(0o022)


def capabilities(pid: int) -> int:
    """What a process and its children may at most have."""
    with open("/proc/%d/status" % pid) as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapBnd")), 0)


# A shell or a command -------------------------------------------------------------------------------------------------


class ContainerSession:
    def __init__(
        self, engine: DockerClient, name: str, shell: str, command: Optional[str], passed_on: Dict[str, str]
    ) -> None:
        self._engine, self._tty, self._cut = engine, os.isatty(0), False
        argv = ["/bin/sh", "-c", SHELL] if command is None else [shell, "-c", command]
        body = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": self._tty,
            "Cmd": argv,
            "Env": ["%s=%s" % item for item in passed_on.items()],
        }
        self._id: str = engine.call("POST", "/containers/%s/exec" % name, body=body)["Id"]

    def run(self) -> int:
        noticed, wakeup = os.pipe()
        for fd in (noticed, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in (signal.SIGWINCH, signal.SIGHUP, CUT, *PASSED_SIGNALS):
            signal.signal(number, lambda *_: None)
        if self._tty:
            tty.setraw(
                0, termios.TCSANOW
            )  # keeping what is typed already; the container's terminal does what a terminal does
        upgrade = {"Upgrade": "tcp", "Connection": "Upgrade"}
        start = {"Detach": False, "Tty": self._tty}
        sock, first = self._engine.stream("POST", "/exec/%s/start" % self._id, {}, upgrade, body=start)
        self._resize()
        pump = Pump(0, 1, 2, sock, first, self._tty, noticed, self._signalled)
        if pump.run():
            return self._exit_status()
        self._send(signal.SIGKILL if self._cut or CUT in _noticed(noticed) else signal.SIGHUP)  # the client has gone
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
            return None  # it has just ended, or the engine is restarting: the session goes on without

    def _exit_status(self) -> int:
        until = time.monotonic() + EXIT_SECONDS
        while time.monotonic() < until:
            found = self._engine.call("GET", "/exec/%s/json" % self._id)
            if not found["Running"]:
                return FAILED if found["ExitCode"] is None else int(found["ExitCode"])
            time.sleep(0.02)
        return FAILED


def _noticed(fd: int) -> bytes:
    """Signals that nobody has looked at yet."""
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


class HungUp(Exception):
    """The client's terminal is gone."""


class Pump:
    """Passes bytes on between a session's descriptors and the engine's connection. Without a terminal the engine marks
    which bytes are output and which are errors: 8 bytes of head, then so many of either."""

    def __init__(
        self,
        stdin: int,
        stdout: int,
        stderr: int,
        sock: socket.socket,
        first: bytes,
        raw: bool,
        noticed: int = -1,
        signalled: Callable[[bytes], None] = lambda numbers: None,
    ) -> None:
        self._stdin, self._sock, self._raw = stdin, sock, raw
        self._noticed, self._signalled = noticed, signalled
        self._stdout, self._stderr = stdout, stderr
        self._given = bytearray()  # by the client, not yet with the engine
        self._marked = bytearray(first)  # from the engine, not yet taken apart
        self._to, self._left = stdout, 0  # where the part goes of which so much is still to come
        self._wanted: Dict[int, bytearray] = {stdout: bytearray(), stderr: bytearray()}
        self._reading, self._open, self._shut = True, True, False
        for fd in (stdin, stdout, stderr):
            os.set_blocking(fd, False)
        sock.setblocking(False)

    def run(self) -> bool:
        """True when the command has ended and all it said is passed on; False if the client went first."""
        self._take_apart()
        try:
            while self._open or any(self._wanted.values()):
                self._pass_on(self._ready())
        except (OSError, HungUp):  # what it was to get can't be written
            return False
        finally:
            self._sock.close()
        return True

    def _full(self) -> bool:
        return sum(len(part) for part in self._wanted.values()) >= BUFFER

    def _ready(self) -> Dict[int, int]:
        poll = select.poll()
        if self._noticed >= 0:
            poll.register(self._noticed, select.POLLIN)
        if self._reading and len(self._given) < BUFFER:
            poll.register(self._stdin, select.POLLIN)
        if self._open:
            events = 0 if self._full() else select.POLLIN
            events |= select.POLLOUT if self._given else 0
            if events:
                poll.register(self._sock.fileno(), events)
        for fd, waiting in self._wanted.items():
            poll.register(fd, select.POLLOUT if waiting else 0)  # even then poll says that nobody reads any more
        return dict(poll.poll())

    def _pass_on(self, ready: Dict[int, int]) -> None:
        if self._noticed in ready:
            self._signalled(os.read(self._noticed, 4096))
        for fd, waiting in self._wanted.items():
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
            part = b""  # a terminal that was hung up
            if self._raw:
                raise HungUp() from None
        self._reading = bool(part)
        self._given += part
        self._shut_if_done()

    def _exchange(self, events: int) -> None:
        if self._given and events & (select.POLLOUT | select.POLLERR | select.POLLHUP):
            try:
                del self._given[: _written(lambda: self._sock.send(self._given))]
            except OSError:  # the command reads no more; what it says still comes
                self._given.clear()
                self._reading = False
            self._shut_if_done()
        if events & (select.POLLIN | select.POLLERR | select.POLLHUP) and not self._full():
            try:
                part = self._sock.recv(65536)
            except BlockingIOError:
                return
            except ConnectionError:
                part = b""
            self._open = bool(part)
            self._marked += part
            self._take_apart()

    def _shut_if_done(self) -> None:
        if not self._reading and not self._given and not self._shut:
            self._shut = True
            try:
                self._sock.shutdown(socket.SHUT_WR)
            except OSError:
                return  # the command has ended

    def _take_apart(self) -> None:
        """Passes on what came, also of a part that isn't here whole: it may be larger than any buffer."""
        if self._raw:
            self._left = len(self._marked)
        while self._marked:
            if not self._left:
                if len(self._marked) < 8:
                    return
                self._to = self._stderr if self._marked[0] == 2 else self._stdout
                self._left = int.from_bytes(self._marked[4:8], "big")
                del self._marked[:8]
            here = self._marked[: self._left]
            self._wanted[self._to] += here
            self._left -= len(here)
            del self._marked[: len(here)]


def _written(write: Callable[[], int]) -> int:
    try:
        return write()
    except BlockingIOError:
        return 0

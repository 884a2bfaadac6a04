"""Plain processes as a runtime: no image, but a user of its own where root may give one, a terminal, a folder, limits
where allowed, and no orphans.

The supervisor forks the task as leader of a new session whose controlling terminal is a pty of ours. Standard output
and standard error are that one terminal, so their bytes arrive in the order a person would have seen.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import signal
import struct
import termios
import time
from typing import Any, Dict, List, Optional, Set

from . import files, process_tree, repositories, users
from .accounts import Account, account_of, outside, own_file, own_folder, own_home
from .cgroups import CgroupLimits
from .task_runtime import NO_ISOLATION, Began, TaskError, Usage
from .tasks import TaskFolder, delete_tree, read_text
from .users import Users

COLUMNS, ROWS = 120, 40
READ_BYTES = 65536
DRAIN_SECONDS = 20.0  # to wait for killed processes, and again for their last output; busy machines are slow
PROCESSES_MOST = 16384  # of a user that is the task's own
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessRuntime:
    name = "process"

    def __init__(self, users_told: str = "") -> None:
        self._users = Users(users_told)

    def problem(self) -> str:
        return ""

    @property
    def isolation(self) -> str:
        return self._users.isolation

    def begin(self, began: Began) -> "ProcessWork":
        spec, folder = began.spec, began.folder
        if began.state.get("state") == "running":
            self._end_leftovers(folder.task, began.state.get("uid"))
            raise TaskError(
                "executor_error", "the task's supervisor was killed or the machine restarted; the task ended with it"
            )
        check(spec, self.isolation)
        account = account_of(spec.get("user"), self._users, folder.task, bool(began.gpus))
        try:
            return self._start(began, account)
        except BaseException:
            if account.held is not None:
                account.held.release()
            raise

    def _start(self, began: Began, account: Account) -> "ProcessWork":
        spec, folder = began.spec, began.folder
        given = str(spec.get("home_dir") or "")
        if not account.confined and os.path.isdir(given):  # the default image's; else the task's own folder is the home
            home, scratch = given, ""
        else:
            home, scratch = own_home(folder, account)
        where = files.resolve(spec.get("working_dir") or "", home, home)
        own_folder(where, account)
        repositories.bring(began, account, scratch, files.code_dir(spec, where, home))
        for number, mapping in enumerate(spec.get("files") or ()):
            target = files.resolve(mapping["path"], where, home)
            with account.acting():
                into = files.is_place(mapping["path"]) or os.path.isdir(target)
            files.unpack(os.path.join(folder.files, str(number)), target, into, account.acting)
        hostfile = os.path.join(home, "." + files.HOSTFILE)
        own_file(hostfile, spec.get("hostfile") or "", account)
        placed = dict(spec, env=files.with_places(spec, where, home, hostfile))
        environment = task_environment(placed, account, home, folder.task, began.gpus, scratch)
        limits = CgroupLimits(folder.task, spec.get("cpu"), spec.get("memory_bytes"))
        work = ProcessWork(spec["commands"], environment, where, account, limits)
        uid = None if account.held is None else account.held.uid
        began.report("running", username=account.name, working_dir=where, uid=uid)
        return work

    def _end_leftovers(self, task: str, uid: Optional[int]) -> None:
        process_tree.send(process_tree.marked(task), signal.SIGKILL)
        held = None if uid is None else self._users.hold(uid)
        if held is not None:  # else the id is another task's by now, which ended these
            held.release()

    def usage(self, folder: TaskFolder) -> Optional[Usage]:
        pid = read_text(os.path.join(folder.path, "pid"))
        if not pid:
            return None
        cpu, resident = process_tree.usage(int(pid))
        return Usage(cpu, resident, resident)

    def remove(self, folder: TaskFolder) -> None:
        process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
        delete_tree(outside(folder.task))

    def sweep(self, known: Set[str]) -> None:
        """Only processes could outlive a task's folder, and `remove` has ended those."""


def check(spec: Dict[str, Any], isolation: str) -> None:
    """Refuse what plain processes can't do here, or mustn't."""
    if spec.get("isolated") and isolation == NO_ISOLATION:
        raise TaskError(
            "executor_error",
            "this machine runs jobs as plain processes of its agent's user, which only the project's admins may use; "
            "install a container engine there, run its agent as root, or start the server with --trust-jobs",
        )
    if not spec.get("commands"):
        raise TaskError("executor_error", "there is nothing to run: the task has no commands")
    if spec.get("volumes"):
        raise TaskError("executor_error", "volumes can't be mounted for plain processes; they need the docker runtime")
    wanted, there = spec.get("shm_bytes") or 0, shared_memory()
    if wanted > there:
        raise TaskError(
            "executor_error",
            "shm_size: %d MiB requested, but this machine's /dev/shm has %d; plain processes share it as it is"
            % (wanted >> 20, there >> 20),
        )


def shared_memory() -> int:
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:  # there is none
        return 0
    return disk.f_blocks * disk.f_frsize


def task_environment(
    spec: Dict[str, Any], account: Account, home: str, task: str, gpus: List[str], scratch: str = ""
) -> Dict[str, str]:
    """Takes nothing from the agent's environment: a task must not depend on how its agent was started."""
    environment = {
        "PATH": PATH,
        "HOME": home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": spec.get("shell") or "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    if scratch:
        environment["TMPDIR"] = scratch
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    environment.update({name: str(value) for name, value in (spec.get("env") or {}).items()})
    environment[process_tree.MARK] = task
    return environment


class ProcessWork:
    def __init__(
        self, argv: List[str], environment: Dict[str, str], where: str, account: Account, limits: CgroupLimits
    ) -> None:
        self._limits, self._out_of_memory, self._held = limits, False, account.held
        # The supervisor also keeps the terminal's other end open: it must not read as ended if the task closes its
        # output for a while.
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HH4x", ROWS, COLUMNS))
        if account.foreign:
            os.fchown(self._slave, account.uid, account.gid)
        os.set_blocking(self._master, False)
        trouble, trouble_write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._child(argv, environment, where, account, trouble_write)
        os.close(trouble_write)
        with os.fdopen(trouble, "rb") as pipe:
            said = pipe.read().decode("utf-8", "replace")
        self._status: Optional[int] = None
        if said:
            os.waitpid(self._pid, 0)
            limits.delete()
            raise TaskError("executor_error", said)

    def _child(self, argv: List[str], environment: Dict[str, str], where: str, account: Account, trouble: int) -> None:
        """Between fork and exec; errors go through the pipe, which a successful exec closes."""
        step = "starting the task"
        try:
            os.setsid()
            fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
            for number in (0, 1, 2):
                os.dup2(self._slave, number)
            for number in range(1, signal.NSIG):
                if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) not in (
                    None,
                    signal.SIG_DFL,
                ):
                    signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            os.umask(0o022)
            self._limits.join()
            if self._held is not None:
                resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES_MOST, PROCESSES_MOST))
            account.become()
            step = "working directory %s" % where
            os.chdir(where)
            step = "command %s" % argv[0]
            os.execvpe(argv[0], argv, environment)
        except OSError as problem:
            os.write(trouble, ("%s: %s" % (step, problem.strerror)).encode())
        finally:
            os._exit(127)

    def fileno(self) -> int:
        return self._master

    def read(self) -> bytes:
        try:
            return os.read(self._master, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as problem:
            if problem.errno == errno.EIO:
                return b""  # the other end is closed everywhere
            raise

    def ended(self) -> Optional[int]:
        while self._status is None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self._pid:
                self._status = _exit_status(status)
        return self._status

    def wake_at(self) -> float:
        return float("inf")

    def signal_politely(self) -> None:
        process_tree.ask_to_end(process_tree.descendants(os.getpid()))

    def signal_firmly(self) -> None:
        process_tree.send(process_tree.descendants(os.getpid()), signal.SIGTERM)

    def kill(self) -> None:
        process_tree.send(process_tree.descendants(os.getpid()), signal.SIGKILL)
        if self._held is not None:
            users.kill_all(self._held.uid)

    def out_of_memory(self) -> bool:
        return self._out_of_memory

    def finish(self) -> bytes:
        """The first process has exited; end those it left behind, then read the terminal to its end."""
        until = time.monotonic() + DRAIN_SECONDS
        last = []
        while time.monotonic() < until:
            last.append(self.read())
            left = process_tree.descendants(os.getpid())
            if not left:
                break
            self.kill()
            select.select([], [], [], 0.005)
        if self._held is not None:
            self._held.release()
        self._reap()
        os.close(self._slave)
        last.append(self._read_to_end(time.monotonic() + DRAIN_SECONDS))
        os.close(self._master)
        self._out_of_memory = self._limits.out_of_memory()
        self._limits.delete()
        return b"".join(last)

    def _read_to_end(self, until: float) -> bytes:
        """With every other end closed, the terminal returns all that was written, then EIO."""
        parts = []
        while time.monotonic() < until:
            try:
                part = os.read(self._master, READ_BYTES)
            except BlockingIOError:
                select.select([self._master], [], [], 0.05)
                continue
            except OSError as problem:
                if problem.errno != errno.EIO:
                    raise
                break
            parts.append(part)
        return b"".join(parts)

    @staticmethod
    def _reap() -> None:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    return
            except ChildProcessError:
                return


def _exit_status(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

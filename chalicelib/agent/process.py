"""Plain processes as a runtime: no image, no isolation, but a terminal, a folder, limits where allowed, and no orphans.

The supervisor forks the task as leader of a new session whose controlling terminal is a pty of ours. Standard output
and standard error are that one terminal, so their bytes arrive in the order a person would have seen.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import resource
import select
import signal
import struct
import tempfile
import termios
import time
from typing import Any, Dict, List, Optional, Set

from . import files, process_tree
from .cgroups import CgroupLimits
from .task_runtime import Began, TaskError, Usage
from .tasks import TaskFolder, delete_tree, read_text

COLUMNS, ROWS = 120, 40
READ_BYTES = 65536
DRAIN_SECONDS = 20.0  # to wait for killed processes, and again for their last output; busy machines are slow
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Account:
    """The user and group a task runs as."""

    def __init__(self, wanted: Any) -> None:
        self.uid, self.gid = os.getuid(), os.getgid()
        if isinstance(wanted, dict):
            user = wanted.get("username") or wanted.get("uid")
            group = wanted.get("groupname") or wanted.get("gid")
        else:
            user, _, group = str(wanted or "").partition(":")
        known = self._user(user) if user not in (None, "") else self._entry(self.uid)
        self.name = known.pw_name if known else str(self.uid)
        if user not in (None, ""):
            self.uid = known.pw_uid if known else int(user)
            self.gid = known.pw_gid if known else self.uid
        if group not in (None, ""):
            self.gid = self._group(group)
        if self.uid != os.getuid() and os.getuid() != 0:
            own = self._entry(os.getuid())
            raise TaskError(
                "executor_error",
                "user %s: the agent here runs as %s, and only root can run a task as somebody else; leave `user` out "
                "or start the agent as root" % (self.name, own.pw_name if own else os.getuid()),
            )

    @staticmethod
    def _entry(uid: int) -> "Optional[pwd.struct_passwd]":
        try:
            return pwd.getpwuid(uid)
        except KeyError:
            return None

    def _user(self, user: Any) -> "Optional[pwd.struct_passwd]":
        if str(user).isdigit():
            return self._entry(int(user))
        try:
            return pwd.getpwnam(str(user))
        except KeyError:
            raise TaskError("executor_error", "user %s: there is no such user on this machine" % user) from None

    @staticmethod
    def _group(group: Any) -> int:
        if str(group).isdigit():
            return int(group)
        try:
            return grp.getgrnam(str(group)).gr_gid
        except KeyError:
            raise TaskError("executor_error", "group %s: there is no such group on this machine" % group) from None

    @property
    def foreign(self) -> bool:
        return self.uid != os.getuid()

    def become(self) -> None:
        if os.getuid() == 0 and (self.uid or self.gid != os.getgid()):
            os.initgroups(self.name, self.gid) if self._entry(self.uid) else os.setgroups([self.gid])
            os.setgid(self.gid)
            os.setuid(self.uid)


class ProcessRuntime:
    name = "process"

    def problem(self) -> str:
        return ""

    def begin(self, began: Began) -> "ProcessWork":
        spec, folder = began.spec, began.folder
        if began.state.get("state") == "running":
            process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
            raise TaskError(
                "executor_error", "the task's supervisor was killed or the machine restarted; the task ended with it"
            )
        if not spec.get("commands"):
            raise TaskError("executor_error", "there is nothing to run: the task has no commands")
        if spec.get("volumes"):
            raise TaskError(
                "executor_error", "volumes can't be mounted for plain processes; they need the docker runtime"
            )
        wanted, there = spec.get("shm_bytes") or 0, shared_memory()
        if wanted > there:
            raise TaskError(
                "executor_error",
                "shm_size: %d MiB requested, but this machine's /dev/shm has %d; plain processes share it as it is"
                % (wanted >> 20, there >> 20),
            )
        account = Account(spec.get("user"))
        home = str(spec.get("home_dir") or "")
        if not os.path.isdir(home):  # the spec's home is the default image's; here the task's own folder is the home
            home = folder.home if reachable(folder.home, account) else outside_home(folder.task)
        where = files.resolve(spec.get("working_dir") or "", home, home)
        own_folder(home, account)
        own_folder(where, account)
        for number, mapping in enumerate(spec.get("files") or ()):
            target = files.resolve(mapping["path"], where, home)
            owner = (account.uid, account.gid) if account.foreign else None
            into = files.is_place(mapping["path"]) or os.path.isdir(target)
            files.unpack(os.path.join(folder.files, str(number)), target, into, owner)
        hostfile = os.path.join(home, "." + files.HOSTFILE)
        own_file(hostfile, spec.get("hostfile") or "", account)
        placed = dict(spec, env=files.with_places(spec, where, hostfile))
        environment = task_environment(placed, account, home, folder.task, began.gpus)
        limits = CgroupLimits(folder.task, spec.get("cpu"), spec.get("memory_bytes"))
        work = ProcessWork(spec["commands"], environment, where, account, limits)
        began.report("running", username=account.name, working_dir=where)
        return work

    def usage(self, folder: TaskFolder) -> Optional[Usage]:
        pid = read_text(os.path.join(folder.path, "pid"))
        if not pid:
            return None
        cpu, resident = process_tree.usage(int(pid))
        return Usage(cpu, resident, resident)

    def remove(self, folder: TaskFolder) -> None:
        process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
        delete_tree(outside_home(folder.task))

    def sweep(self, known: Set[str]) -> None:
        """Only processes could outlive a task's folder, and `remove` has ended those."""


def shared_memory() -> int:
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:  # there is none
        return 0
    return disk.f_blocks * disk.f_frsize


def reachable(path: str, account: Account) -> bool:
    """Can this account reach `path`? The agent's data folder may be private to the agent."""
    parent = os.path.dirname(path)
    while account.uid != 0 and parent != os.path.dirname(parent):
        found = os.stat(parent)
        shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
        if not found.st_mode >> shift & 1:
            return False
        parent = os.path.dirname(parent)
    return True


def outside_home(task: str) -> str:
    """The home of a task whose user can't reach the task's folder."""
    return os.path.join(tempfile.gettempdir(), "dstack-task-" + task)


def own_folder(path: str, account: Account) -> None:
    try:
        made = not os.path.isdir(path)
        os.makedirs(path, mode=0o755, exist_ok=True)
        if made and account.foreign:
            os.chown(path, account.uid, account.gid)
    except OSError as problem:
        raise TaskError("executor_error", "working directory %s: %s" % (path, problem.strerror)) from None


def own_file(path: str, text: str, account: Account) -> None:
    own_folder(os.path.dirname(path), account)
    try:
        with open(path, "w") as file:
            file.write(text)
        if account.foreign:
            os.chown(path, account.uid, account.gid)
    except OSError as problem:
        raise TaskError("executor_error", "%s: %s" % (path, problem.strerror)) from None


def task_environment(spec: Dict[str, Any], account: Account, home: str, task: str, gpus: List[str]) -> Dict[str, str]:
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
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    environment.update({name: str(value) for name, value in (spec.get("env") or {}).items()})
    environment[process_tree.MARK] = task
    return environment


class ProcessWork:
    def __init__(
        self, argv: List[str], environment: Dict[str, str], where: str, account: Account, limits: CgroupLimits
    ) -> None:
        self._limits, self._out_of_memory = limits, False
        # The supervisor also keeps the terminal's other end open: it must not read as ended if the task closes its
        # output for a while.
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
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
            signal.set_wakeup_fd(-1)
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            os.umask(0o022)
            self._limits.join()
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
            process_tree.send(left, signal.SIGKILL)
            select.select([], [], [], 0.005)
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

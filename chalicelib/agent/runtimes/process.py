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
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Protocol, Set

from ..kernel.lazy import LazyModule
from ..kernel.task_runtime import COLUMNS, NO_ISOLATION, READ_BYTES, ROWS, Began, TaskError, TaskUsage
from ..kernel.tasks import TaskFolder, read_text
from .users import Users

if TYPE_CHECKING:
    from ..kernel import namespaces, process_tree
    from . import (
        accounts,
        cgroups,
        fabric,
        files,
        listening,
        name_service,
        node_ssh,
        repositories,
        session_rights,
        steps,
        users,
        visibility,
    )
    from .accounts import TaskAccount
    from .visibility import TaskCards
else:
    accounts = LazyModule(".runtimes.accounts")
    cgroups = LazyModule(".runtimes.cgroups")
    fabric = LazyModule(".runtimes.fabric")
    files = LazyModule(".runtimes.files")
    listening = LazyModule(".runtimes.listening")
    name_service = LazyModule(".runtimes.name_service")
    namespaces = LazyModule(".kernel.namespaces")
    node_ssh = LazyModule(".runtimes.node_ssh")
    process_tree = LazyModule(".kernel.process_tree")
    repositories = LazyModule(".runtimes.repositories")
    session_rights = LazyModule(".runtimes.session_rights")
    steps = LazyModule(".runtimes.steps")
    users = LazyModule(".runtimes.users")
    visibility = LazyModule(".runtimes.visibility")

DRAIN_SECONDS = 20.0  # to wait for killed processes, and again for their last output; busy machines are slow
PROCESSES_MOST = 16384  # of a user that is the task's own
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ProcessRuntime:
    name = "process"

    def __init__(self, user_ids: str = "") -> None:
        self._users = Users(user_ids)

    def problem(self) -> str:
        return ""

    def storage(self) -> str:
        return ""

    @property
    def isolation(self) -> str:
        return self._users.isolation

    def begin(self, began: Began) -> "ProcessWork":
        spec, folder = began.spec, began.folder
        if began.state.get("state") == "running":
            session_rights.refuse(folder)
            self._end_leftovers(folder.task, began.state.get("uid"))
            what = "the machine restarted" if began.rebooted else "the task's supervisor was killed"
            raise TaskError("executor_error", "%s; the task ended with it" % what)
        check(spec, self.isolation)
        listening.check(spec)
        account = accounts.account_of(spec, self._users, folder.task, bool(began.gpus))
        try:
            began.volumes.enter(account)
            return self._start(began, account)
        except BaseException:
            if account.held is not None:
                account.held.release()
            raise

    def _start(self, began: Began, account: TaskAccount) -> "ProcessWork":
        spec, folder = began.spec, began.folder
        home, scratch = accounts.own_home(folder, account)
        equipped = node_ssh.Equipped()
        if spec.get("node_ssh"):
            equipped = node_ssh.equip_process(spec, account, home, accounts.server_user())
        if spec.get("home_dir"):
            home = str(spec["home_dir"])
            accounts.own_folder(home, account, "home_dir")
        seen = name_service.lists_for(folder, account, home, shell_of(spec))
        where = files.resolve(spec.get("working_dir") or "", home, home)
        accounts.own_folder(where, account)
        repositories.bring(began, account, scratch, files.code_dir(spec, where, home), seen)
        files.bring(spec, folder.files, where, home, account.acting)
        hostfile = os.path.join(home, "." + files.HOSTFILE)
        accounts.own_file(hostfile, spec.get("hostfile") or "", account)
        placed = dict(spec, env=files.with_places(spec, where, home, hostfile))
        environment = task_environment(
            placed, account, home, folder.task, visibility.cards_of(began.spec, began.gpus), scratch
        )
        if equipped.path:
            environment["PATH"] = equipped.path + ":" + environment["PATH"]
        place = os.path.join(accounts.outside(folder.task) if account.foreign else folder.path, "command")
        if spec.get("steps"):
            steps.make(place, account.uid, account.gid)
        group = cgroups.TaskGroup(folder.task)
        group.make(spec.get("cpu"), spec.get("memory_bytes"))
        started = dict(environment, **steps.variable(spec, place))  # but not sessions
        work = ProcessWork(spec, started, where, account, group, folder, place, seen)
        uid = None if account.held is None else account.held.uid
        session_rights.admit(folder, account, environment, where, seen)
        began.report("running", username=account.name, working_dir=where, uid=uid, message=equipped.problem)
        return work

    def _end_leftovers(self, task: str, uid: Optional[int]) -> None:
        end_group(task)
        process_tree.send(process_tree.marked(task), signal.SIGKILL)
        held = None if uid is None else self._users.hold(uid)
        if held is not None:  # else the id is another task's by now, which ended these
            held.release()

    def usage(self, folder: TaskFolder) -> Optional[TaskUsage]:
        pid = read_text(os.path.join(folder.path, "pid"))
        if not pid:
            return None
        cpu, resident = process_tree.usage(int(pid))
        counted = cgroups.TaskGroup(folder.task).usage()  # exact, where this machine's groups count
        memory = counted.get("memory", resident)
        return TaskUsage(counted.get("cpu", cpu), memory, max(0, memory - counted.get("idle", 0)))

    def network(self, folder: TaskFolder) -> Optional[int]:
        return None

    def address(self, folder: TaskFolder) -> str:
        return ""

    def remove(self, folder: TaskFolder) -> None:
        end_group(folder.task)
        process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
        accounts.delete_outside(folder.task)

    def sweep(self, known: Set[str]) -> None:
        """Only processes could outlive a task's folder, and `remove` has ended those."""


def end_group(task: str) -> None:
    """What is left of a task's group, after a supervisor that was killed."""
    group, until = cgroups.TaskGroup(task), time.monotonic() + DRAIN_SECONDS
    while group.processes() and time.monotonic() < until:
        group.kill()
        time.sleep(0.005)
    group.delete()


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


def shell_of(spec: Dict[str, Any]) -> str:
    return str(spec.get("shell") or "/bin/sh")


def task_environment(
    spec: Dict[str, Any], account: TaskAccount, home: str, task: str, cards: TaskCards, scratch: str = ""
) -> Dict[str, str]:
    """Takes nothing from the agent's environment: a task must not depend on how its agent was started."""
    environment = {
        "PATH": PATH,
        "HOME": home,
        "USER": account.name,
        "LOGNAME": account.name,
        "SHELL": shell_of(spec),
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }
    if scratch:
        environment["TMPDIR"] = scratch
    environment.update(visibility.in_process(cards))
    environment.update({name: str(value) for name, value in (spec.get("env") or {}).items()})
    environment[process_tree.MARK] = task
    return environment


class ProcessGroup(Protocol):
    """What holds a task's processes together, if anything does (`cgroups`)."""

    def join(self) -> None: ...
    def processes(self) -> List[int]: ...
    def kill(self) -> None: ...
    def out_of_memory(self) -> bool: ...
    def delete(self) -> None: ...


class ProcessWork:
    def __init__(
        self,
        spec: Dict[str, Any],
        environment: Dict[str, str],
        where: str,
        account: TaskAccount,
        group: ProcessGroup,
        folder: TaskFolder,
        place: str,  # of the file that the task's shell writes to (`steps`)
        seen: Dict[str, str],  # which files it sees in the places of which
    ) -> None:
        self._group, self._out_of_memory, self._held, self._folder = group, False, account.held, folder
        self._place = place
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
            self._child(spec, environment, where, account, trouble_write, seen)
        os.close(trouble_write)
        with os.fdopen(trouble, "rb") as pipe:
            said = pipe.read().decode("utf-8", "replace")
        self._status: Optional[int] = None
        if said:
            os.waitpid(self._pid, 0)
            group.delete()
            raise TaskError("executor_error", said)

    def _child(
        self,
        spec: Dict[str, Any],
        environment: Dict[str, str],
        where: str,
        account: TaskAccount,
        trouble: int,
        seen: Dict[str, str],
    ) -> None:
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
            self._group.join()
            if self._held is not None:
                resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES_MOST, PROCESSES_MOST))
            fabric.lift(spec)
            if seen:
                namespaces.see_instead(seen)
            account.become()
            step = "working directory %s" % where
            os.chdir(where)
            argv = spec["commands"]
            step = "command %s" % argv[0]
            os.execvpe(argv[0], argv, environment)
        except OSError as problem:
            os.write(trouble, ("%s: %s" % (step, problem.strerror)).encode())
        finally:
            os._exit(127)

    def fileno(self) -> int:
        return self._master

    def read(self) -> bytes:
        """A terminal passes on 4 KB at a time, however much waits: reads on, or each would become a record."""
        parts: List[bytes] = []
        room = READ_BYTES
        while room > 0:
            try:
                part = os.read(self._master, room)
            except BlockingIOError:
                break
            parts.append(part)
            room -= len(part)
        return b"".join(parts)

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

    def _processes(self) -> List[int]:
        """Those below the supervisor, parents first, and any that got away from there."""
        below = process_tree.descendants(os.getpid())
        return below + [pid for pid in self._group.processes() if pid not in below]

    def signal_politely(self) -> None:
        process_tree.ask_to_end(self._processes())

    def signal_firmly(self) -> None:
        process_tree.send(self._processes(), signal.SIGTERM)

    def kill(self) -> None:
        self._group.kill()
        process_tree.send(process_tree.descendants(os.getpid()), signal.SIGKILL)
        if self._held is not None:
            users.kill_all(self._held.uid)

    def out_of_memory(self) -> bool:
        return self._out_of_memory

    def step(self) -> str:
        return steps.read(self._place)

    def finish(self) -> bytes:
        """The first process has exited; end those it left behind, then read the terminal to its end."""
        session_rights.refuse(self._folder)
        until = time.monotonic() + DRAIN_SECONDS
        last = []
        while time.monotonic() < until:
            last.append(self.read())
            if not self._processes():
                break
            self.kill()
            select.select([], [], [], 0.005)
        if self._held is not None:
            self._held.release()
        self._reap()
        os.close(self._slave)
        last.append(self._read_to_end(time.monotonic() + DRAIN_SECONDS))
        os.close(self._master)
        self._out_of_memory = self._group.out_of_memory()
        self._group.delete()
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

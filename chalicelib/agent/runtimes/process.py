"""The runtime of plain processes. A task has no image, but a terminal, a folder, a user of its own if root runs the
agent, and limits where the machine allows them; none of its processes outlives it.

The supervisor forks the task as leader of a new session whose controlling terminal is the supervisor's pty. Standard
output and standard error are that one terminal, so their bytes arrive in the order in which a person would see them.
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
from typing import TYPE_CHECKING, Dict, List, Optional, Protocol, Set

from ..kernel.lazy import LazyModule
from ..kernel.task_runtime import COLUMNS, NO_ISOLATION, READ_BYTES, ROWS, TaskContext, TaskError, TaskUsage
from ..kernel.tasks import TaskFolder, read_text
from .users import Users

if TYPE_CHECKING:
    from ..kernel import namespaces, process_tree
    from ..kernel.tasks import LaunchedTask
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

DRAIN_SECONDS = 20.0  # for killed processes to end, and again for their last output: busy machines are slow
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

    def begin(self, context: TaskContext) -> "ProcessWork":
        spec, folder = context.spec, context.folder
        if context.state.get("state") == "running":
            session_rights.refuse(folder)
            self._end_leftovers(folder.task, context.state.get("uid"))
            cause = "the machine restarted" if context.rebooted else "the task's supervisor was killed"
            raise TaskError("executor_error", "%s; the task ended with it" % cause)
        check(spec, self.isolation)
        listening.check(spec)
        account = accounts.account_of(spec, self._users, folder.task, bool(context.gpus))
        try:
            context.volumes.enter(account)
            return self._start(context, account)
        except BaseException:
            if account.held is not None:
                account.held.release()
            raise

    def _start(self, context: TaskContext, account: TaskAccount) -> "ProcessWork":
        spec, folder = context.spec, context.folder
        home, scratch = accounts.make_home(folder, account)
        equipped = node_ssh.ProcessSetup()
        if spec.get("node_ssh"):
            equipped = node_ssh.equip_process(spec, account, home, accounts.server_user())
        if spec.get("home_dir"):
            home = str(spec["home_dir"])
            accounts.make_folder(home, account, "home_dir")
        bound_files = name_service.bound_files_for(folder, account, home, shell_of(spec))
        working_dir = files.resolve(spec.get("working_dir") or "", home, home)
        accounts.make_folder(working_dir, account)
        repositories.bring(context, account, scratch, files.code_dir(spec, working_dir, home), bound_files)
        files.bring(spec, folder.files, working_dir, home, account.acting)
        hostfile = os.path.join(home, "." + files.HOSTFILE)
        accounts.write_file(hostfile, spec.get("hostfile") or "", account)
        placed: LaunchedTask = {**spec, "env": files.with_places(spec, working_dir, home, hostfile)}
        environment = task_environment(
            placed, account, home, folder.task, visibility.cards_of(context.spec, context.gpus), scratch
        )
        if equipped.path:
            environment["PATH"] = equipped.path + ":" + environment["PATH"]
        step_file = os.path.join(accounts.outside(folder.task) if account.foreign else folder.path, "command")
        if spec.get("steps"):
            steps.make(step_file, account.uid, account.gid)
        group = cgroups.TaskGroup(folder.task)
        group.make(spec.get("cpu"), spec.get("memory_bytes"))
        task_variables = dict(environment, **steps.variable(spec, step_file))  # sessions don't get the step file
        work = ProcessWork(spec, task_variables, working_dir, account, group, folder, step_file, bound_files)
        uid = None if account.held is None else account.held.uid
        session_rights.admit(folder, account, environment, working_dir, bound_files)
        context.report("running", username=account.name, working_dir=working_dir, uid=uid, message=equipped.problem)
        return work

    def _end_leftovers(self, task: str, uid: Optional[int]) -> None:
        end_group(task)
        process_tree.send(process_tree.marked(task), signal.SIGKILL)
        held = None if uid is None else self._users.hold(uid)
        if held is not None:  # else another task has the id by now, and ended these when it took it
            held.release()

    def usage(self, folder: TaskFolder) -> Optional[TaskUsage]:
        pid = read_text(os.path.join(folder.path, "pid"))
        if not pid:
            return None
        cpu, resident = process_tree.usage(int(pid))
        counted = cgroups.TaskGroup(folder.task).usage()  # exact, where control groups are available
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
    """Kill what is left of a task's group after its supervisor was killed."""
    group, until = cgroups.TaskGroup(task), time.monotonic() + DRAIN_SECONDS
    while group.processes() and time.monotonic() < until:
        group.kill()
        time.sleep(0.005)
    group.delete()


def check(spec: LaunchedTask, isolation: str) -> None:
    """Raise TaskError for a task that can't run as a plain process here, or must not."""
    if spec.get("isolated") and isolation == NO_ISOLATION:
        raise TaskError(
            "executor_error",
            "this machine runs jobs as plain processes of its agent's user, which only the project's admins may use; "
            "install a container engine there, run its agent as root, or start the server with --trust-jobs",
        )
    known = spec.get("interconnect")
    if known and known.get("sidecars"):
        raise TaskError(
            "executor_error",
            "the network between this job's nodes needs containers beside it, and this machine runs jobs as plain "
            "processes: it has no container engine",
        )
    if not spec.get("commands"):
        raise TaskError("executor_error", "there is nothing to run: the task has no commands")
    requested, available = spec.get("shm_bytes") or 0, shared_memory()
    if requested > available:
        raise TaskError(
            "executor_error",
            "shm_size: %d MiB requested, but this machine's /dev/shm has %d; plain processes share it as it is"
            % (requested >> 20, available >> 20),
        )


def shared_memory() -> int:
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:  # there is none
        return 0
    return disk.f_blocks * disk.f_frsize


def shell_of(spec: LaunchedTask) -> str:
    return str(spec.get("shell") or "/bin/sh")


def task_environment(
    spec: LaunchedTask, account: TaskAccount, home: str, task: str, cards: TaskCards, scratch: str = ""
) -> Dict[str, str]:
    """The task's variables. None comes from the agent, because a task must not depend on how its agent was started."""
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
    environment.update(visibility.process_variables(cards))
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
        spec: LaunchedTask,
        environment: Dict[str, str],
        working_dir: str,
        account: TaskAccount,
        group: ProcessGroup,
        folder: TaskFolder,
        step_file: str,  # the file that the task's shell writes to (`steps`)
        bound_files: Dict[str, str],  # the file to mount over each path
    ) -> None:
        self._group, self._out_of_memory, self._held, self._folder = group, False, account.held, folder
        self._place = step_file
        # The supervisor also keeps the terminal's other end open: it must not read as ended if the task closes its
        # output for a while.
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HH4x", ROWS, COLUMNS))
        if account.foreign:
            os.fchown(self._slave, account.uid, account.gid)
        os.set_blocking(self._master, False)
        error_pipe, error_pipe_write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._child(spec, environment, working_dir, account, error_pipe_write, bound_files)
        os.close(error_pipe_write)
        with os.fdopen(error_pipe, "rb") as pipe:
            error = pipe.read().decode("utf-8", "replace")
        self._status: Optional[int] = None
        if error:
            os.waitpid(self._pid, 0)
            group.delete()
            raise TaskError("executor_error", error)

    def _child(
        self,
        spec: LaunchedTask,
        environment: Dict[str, str],
        working_dir: str,
        account: TaskAccount,
        error_pipe: int,
        bound_files: Dict[str, str],
    ) -> None:
        """Runs between fork and exec. An error goes through the pipe, which a successful exec closes."""
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
            fabric.raise_limit(spec)
            if bound_files:
                namespaces.bind_over(bound_files)
            account.become()
            step = "working directory %s" % working_dir
            os.chdir(working_dir)
            argv = spec["commands"]
            step = "command %s" % argv[0]
            os.execvpe(argv[0], argv, environment)
        except OSError as problem:
            os.write(error_pipe, ("%s: %s" % (step, problem.strerror)).encode())
        finally:
            os._exit(127)

    def fileno(self) -> int:
        return self._master

    def read(self) -> bytes:
        """Return all output that is ready. A terminal returns at most 4 KB a read, and each would become a record."""
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
        """The supervisor's descendants, parents first, and any others in the task's control group."""
        below = process_tree.descendants(os.getpid())
        return below + [pid for pid in self._group.processes() if pid not in below]

    def signal_politely(self) -> None:
        process_tree.end_politely(self._processes())

    def signal_firmly(self) -> None:
        process_tree.send(self._processes(), signal.SIGTERM)

    def kill(self) -> None:
        self._group.kill()
        process_tree.send(process_tree.descendants(os.getpid()), signal.SIGKILL)
        if self._held is not None:
            users.kill_user(self._held.uid)

    def out_of_memory(self) -> bool:
        return self._out_of_memory

    def step(self) -> str:
        return steps.read(self._place)

    def finish(self) -> bytes:
        """End the processes that the first one left behind, then read the terminal to its end."""
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
        """Read the terminal, which returns EIO after the last output because every other end is closed."""
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

"""The runtime of an agent in a container that is bought in place of a machine, for one task.

The task gets the image's files, user, working folder and environment, and its spec may override them. The runtime
needs neither root, an engine, a shell nor Python in the image (`kernel/interpreter`).

Only the container's own limits apply: the task gets no others, no user of its own, and no disks except those that the
provider mounted. When the task ends, all processes below its supervisor are killed. Processes that the image or the
provider started beside them end with the container (`program/first_process`).
"""

from __future__ import annotations

import os
import pwd
import signal
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Set, Tuple

from ..kernel import process_tree
from ..kernel.task_runtime import ALONE, TaskContext, TaskError, TaskUsage
from ..kernel.tasks import TaskFolder, list_tasks, read_text, write_atomic
from . import accounts, files, node_ssh, repositories, session_rights, steps
from .cgroups import OwnGroup
from .process import PATH, ProcessWork, shared_memory

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask

# The agent's settings in the container's environment. The task doesn't get them.
SETTINGS = (
    "DSTACK_SERVER",
    "DSTACK_INSTANCE",
    "DSTACK_TOKEN",
    "DSTACK_DATA",
    "DSTACK_PREPARE",
    "DSTACK_AGENT_SHA256",
    "DSTACK_CARRIER_X86_SHA256",
    "DSTACK_CARRIER_ARM_SHA256",
    "DSTACK_AGENT_TOKEN",
    "DSTACK_AGENT_FACTS",
    "DSTACK_HIDDEN",  # names of further variables, such as keys of its API that a provider puts into each container
)
STATUS = "exit-status"  # a file in the agent's folder: the container's exit status


class InsideRuntime:
    name, isolation = "inside", ALONE

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        hidden = {*SETTINGS, *environment.get("DSTACK_HIDDEN", "").split()}
        self._environment = {name: value for name, value in environment.items() if name not in hidden}

    def problem(self) -> str:
        return ""

    def storage(self) -> str:
        return ""

    def begin(self, context: TaskContext) -> ProcessWork:
        spec, folder = context.spec, context.folder
        if context.state.get("state") == "running":
            session_rights.refuse(folder)
            process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
            cause = "the container restarted" if context.rebooted else "the task's supervisor was killed"
            raise TaskError("executor_error", "%s; the task ended with it" % cause)
        check(spec)
        account = accounts.TaskAccount(spec.get("user"))
        if account.foreign:
            for path in (folder.data, os.path.dirname(folder.path), folder.path):
                os.chmod(path, 0o711)
        home = str(spec.get("home_dir") or self._home(account))
        working_dir = files.resolve(spec.get("working_dir") or "", os.getcwd(), home)
        accounts.make_folder(working_dir, account)
        node_setup = node_ssh.ProcessSetup()
        if spec.get("node_ssh"):
            node_setup = node_ssh.equip_process(spec, account, home, accounts.server_user())
        scratch = self._scratch(folder, account)
        repositories.bring(context, account, scratch, files.code_dir(spec, working_dir, home), {})
        files.bring(spec, folder.files, working_dir, home, account.acting)
        hostfile = os.path.join(scratch, "hostfile")
        accounts.write_file(hostfile, spec.get("hostfile") or "", account)
        environment = self._task_environment(spec, home, working_dir, hostfile)
        environment[process_tree.MARK] = folder.task
        if node_setup.path:
            environment["PATH"] = node_setup.path + ":" + environment["PATH"]
        command_dir = os.path.join(folder.path, "command")
        if spec.get("steps"):
            steps.make(command_dir, account.uid, account.gid)
        supervised = dict(environment, **steps.variable(spec, command_dir))
        work = ProcessWork(spec, supervised, working_dir, account, OwnGroup(), folder, command_dir, {})
        session_rights.admit(folder, account, environment, working_dir, {})
        context.report("running", username=account.name, working_dir=working_dir, message=node_setup.problem)
        return work

    def _home(self, account: accounts.TaskAccount) -> str:
        if not account.foreign and self._environment.get("HOME"):
            return self._environment["HOME"]
        try:
            return pwd.getpwuid(account.uid).pw_dir or "/"
        except KeyError:
            return "/"

    @staticmethod
    def _scratch(folder: TaskFolder, account: accounts.TaskAccount) -> str:
        """A folder that the task can write to; its image may have none."""
        os.makedirs(folder.home, mode=0o700, exist_ok=True)
        if account.foreign:
            os.chown(folder.home, account.uid, account.gid)
        return folder.home

    def _task_environment(self, spec: LaunchedTask, home: str, working_dir: str, hostfile: str) -> Dict[str, str]:
        """The environment of the image and the provider, overridden by the task's: what an engine's container has."""
        defaults = {"PATH": PATH, "TERM": "xterm"}
        own = files.with_places(spec, working_dir, home, hostfile, self._venv())
        return {**defaults, **self._environment, "HOME": home, **own}

    def _venv(self) -> str:
        variables = self._environment
        return variables.get("VIRTUAL_ENV") or ("/usr/local" if "PYTHON_VERSION" in variables else "")

    def usage(self, folder: TaskFolder) -> Optional[TaskUsage]:
        """The container's usage, or the task's processes' if the container's control group can't be read."""
        pid = read_text(os.path.join(folder.path, "pid"))
        if not pid:
            return None
        cpu, resident = process_tree.usage(int(pid))
        group = OwnGroup().usage()
        memory = group.get("memory", resident)
        return TaskUsage(group.get("cpu", cpu), memory, max(0, memory - group.get("idle", 0)))

    def network(self, folder: TaskFolder) -> Optional[int]:
        return None

    def address(self, folder: TaskFolder) -> str:
        return ""

    def remove(self, folder: TaskFolder) -> None:
        process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
        write_status(folder)

    def sweep(self, known: Set[str]) -> None:
        """Nothing to do: the container has only its task's processes, and `remove` has ended them."""


def check(spec: LaunchedTask) -> None:
    """Refuse what only the provider can set up, when it creates the container."""
    if not spec.get("commands"):
        raise TaskError("executor_error", "there is nothing to run: the task has no commands")
    if spec.get("docker"):
        raise TaskError(
            "executor_error", "docker: this machine is itself a container, and has no engine; use a fleet of hosts"
        )
    if spec.get("volumes"):
        raise TaskError(
            "volume_error", "volumes: this machine is itself a container, where only its provider mounts anything"
        )
    requested, available = spec.get("shm_bytes") or 0, shared_memory()
    if requested > available:
        raise TaskError(
            "executor_error",
            "shm_size: %d MiB requested, but this container's /dev/shm has %d" % (requested >> 20, available >> 20),
        )


def write_status(folder: TaskFolder) -> None:
    """Store the task's exit status, with which the container will end: 1 for a task that never ran."""
    status = folder.state().get("exit_status")
    write_atomic(os.path.join(folder.data, STATUS), "%d\n" % (1 if status is None else status))


def read_status(data: str) -> Optional[int]:
    """The stored exit status; None if no task has been removed yet."""
    text = read_text(os.path.join(data, STATUS))
    return int(text) if text else None


def taken(data: str, task: str) -> bool:
    """Does the container belong, or did it belong, to another task?"""
    return os.path.exists(os.path.join(data, STATUS)) or any(each != task for each in list_tasks(data))


def data_candidates(environment: Mapping[str, str]) -> Tuple[str, ...]:
    """Paths for the agent's folder, in order of preference: a mount of the provider, then folders of the image that
    are usually writable."""
    configured, home = environment.get("DSTACK_DATA"), environment.get("HOME")
    parents = ("/dstack", "/tmp", "/dev/shm", home or "/")
    return ((configured,) if configured else ()) + tuple(os.path.join(parent, "dstack-agent") for parent in parents)


def data_folder(candidates: Tuple[str, ...]) -> str:
    """The first candidate in which files can be written. Raises OSError, naming all of them, if there is none."""
    problems = []
    for path in candidates:
        try:
            os.makedirs(os.path.join(path, "tasks"), mode=0o711, exist_ok=True)
            write_atomic(os.path.join(path, "writable"), "")
            return path
        except OSError as problem:
            problems.append("%s: %s" % (problem.filename or path, problem.strerror))
    raise OSError("there is no folder to write to (%s); mount one at /dstack" % "; ".join(problems))

"""The container that the agent is in as a runtime: its one task runs there, as the image would have run it.

So the task has the image's files, user, working folder and environment, with what its spec says on top. Nothing is
needed of the image but what the task itself uses: no root, no engine, no shell, no Python (`kernel/interpreter`).

What bounds the container bounds the task: there are no limits of its own, no user, and no disks but those that the
provider mounted. Its end is the end of all processes below its supervisor; what the image or the provider runs beside
them ends with the container (`program/first_process`).
"""

from __future__ import annotations

import os
import pwd
import signal
from typing import Any, Dict, Mapping, Optional, Set, Tuple

from ..kernel import process_tree
from ..kernel.task_runtime import ALONE, TaskContext, TaskError, TaskUsage
from ..kernel.tasks import TaskFolder, list_tasks, read_text, write_atomic
from . import accounts, files, node_ssh, repositories, session_rights, steps
from .cgroups import OwnGroup
from .process import PATH, ProcessWork, shared_memory, shell_of

# What the container was given for its agent; its task doesn't get it. The token has served by then.
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
)
STATUS = "exit-status"  # in the agent's folder: what the container is to end with


class InsideRuntime:
    name, isolation = "inside", ALONE

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = {name: value for name, value in environment.items() if name not in SETTINGS}

    def problem(self) -> str:
        return ""

    def storage(self) -> str:
        return ""

    def begin(self, context: TaskContext) -> ProcessWork:
        spec, folder = context.spec, context.folder
        if context.state.get("state") == "running":
            session_rights.refuse(folder)
            process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
            what = "the container restarted" if context.rebooted else "the task's supervisor was killed"
            raise TaskError("executor_error", "%s; the task ended with it" % what)
        check(spec)
        account = accounts.TaskAccount(spec.get("user"))
        if account.foreign:
            for place in (folder.data, os.path.dirname(folder.path), folder.path):
                os.chmod(place, 0o711)
        home = str(spec.get("home_dir") or self._home(account))
        where = files.resolve(spec.get("working_dir") or "", os.getcwd(), home)
        accounts.make_folder(where, account)
        equipped = node_ssh.ProcessSetup()
        if spec.get("node_ssh"):
            equipped = node_ssh.equip_process(spec, account, home, accounts.server_user())
        scratch = self._scratch(folder, account)
        repositories.bring(context, account, scratch, files.code_dir(spec, where, home), {})
        files.bring(spec, folder.files, where, home, account.acting)
        hostfile = os.path.join(scratch, "hostfile")
        accounts.write_file(hostfile, spec.get("hostfile") or "", account)
        environment = self._of_task(spec, account, home, where, hostfile)
        environment[process_tree.MARK] = folder.task
        if equipped.path:
            environment["PATH"] = equipped.path + ":" + environment["PATH"]
        place = os.path.join(folder.path, "command")
        if spec.get("steps"):
            steps.make(place, account.uid, account.gid)
        started = dict(environment, **steps.variable(spec, place))
        work = ProcessWork(spec, started, where, account, OwnGroup(), folder, place, {})
        session_rights.admit(folder, account, environment, where, {})
        context.report("running", username=account.name, working_dir=where, message=equipped.problem)
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
        """The task's own folder, where its image has none that it may write to."""
        os.makedirs(folder.home, mode=0o700, exist_ok=True)
        if account.foreign:
            os.chown(folder.home, account.uid, account.gid)
        return folder.home

    def _of_task(
        self, spec: Dict[str, Any], account: accounts.TaskAccount, home: str, where: str, hostfile: str
    ) -> Dict[str, str]:
        """What the image and the provider say, then what the task does."""
        lacking = {"PATH": PATH, "SHELL": shell_of(spec), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        user = {"HOME": home, "USER": account.name, "LOGNAME": account.name}
        own = files.with_places(spec, where, home, hostfile, self._environment.get("VIRTUAL_ENV", ""))
        return {**lacking, **self._environment, **user, **own}

    def usage(self, folder: TaskFolder) -> Optional[TaskUsage]:
        """The container's, or where it can't be read that of the task's processes."""
        pid = read_text(os.path.join(folder.path, "pid"))
        if not pid:
            return None
        cpu, resident = process_tree.usage(int(pid))
        counted = OwnGroup().usage()
        memory = counted.get("memory", resident)
        return TaskUsage(counted.get("cpu", cpu), memory, max(0, memory - counted.get("idle", 0)))

    def network(self, folder: TaskFolder) -> Optional[int]:
        return None

    def address(self, folder: TaskFolder) -> str:
        return ""

    def remove(self, folder: TaskFolder) -> None:
        process_tree.send(process_tree.marked(folder.task), signal.SIGKILL)
        write_status(folder)

    def sweep(self, known: Set[str]) -> None:
        """Its task's processes are all there could be, and `remove` has ended those."""


def check(spec: Dict[str, Any]) -> None:
    """Refuse what only the provider could have done, when it made the container."""
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
    wanted, there = spec.get("shm_bytes") or 0, shared_memory()
    if wanted > there:
        raise TaskError(
            "executor_error",
            "shm_size: %d MiB requested, but this container's /dev/shm has %d" % (wanted >> 20, there >> 20),
        )


def write_status(folder: TaskFolder) -> None:
    """Remember how the task ended, for the end of the container. One that never ran has failed."""
    status = folder.state().get("exit_status")
    write_atomic(os.path.join(folder.data, STATUS), "%d\n" % (1 if status is None else status))


def read_status(data: str) -> Optional[int]:
    """None if no task has ended here and was removed."""
    text = read_text(os.path.join(data, STATUS))
    return int(text) if text else None


def taken(data: str, task: str) -> bool:
    """Is the container for another task, or was it?"""
    return os.path.exists(os.path.join(data, STATUS)) or any(each != task for each in list_tasks(data))


def places(environment: Mapping[str, str]) -> Tuple[str, ...]:
    """Where the agent's folder may be, best first: what the provider mounted for it, then what images leave open."""
    given, home = environment.get("DSTACK_DATA"), environment.get("HOME")
    known = ("/dstack", "/tmp", "/dev/shm", home or "/")
    return ((given,) if given else ()) + tuple(os.path.join(place, "dstack-agent") for place in known)


def data_folder(candidates: Tuple[str, ...]) -> str:
    """The first where files can be written. Raises OSError, naming all."""
    why = []
    for path in candidates:
        try:
            os.makedirs(os.path.join(path, "tasks"), mode=0o711, exist_ok=True)
            write_atomic(os.path.join(path, "writable"), "")
            return path
        except OSError as problem:
            why.append("%s: %s" % (problem.filename or path, problem.strerror))
    raise OSError("there is no folder to write to (%s); mount one at /dstack" % "; ".join(why))

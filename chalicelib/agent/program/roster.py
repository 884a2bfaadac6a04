"""The agent's operations on its tasks: start, stop, remove, adopt after a restart, and report.

Everything is read from the tasks' folders; the roster has no state that a restart would lose.
"""

from __future__ import annotations

import functools
import os
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, cast

from ..kernel import interpreter
from ..kernel.lazy import LazyModule
from ..kernel.task_runtime import ALONE, CONTAINER, TaskError, TaskRuntime, micros
from ..kernel.tasks import FINAL, TaskFolder, list_tasks, read_text

if TYPE_CHECKING:
    import subprocess

    from ...contract.agent import HostGpu, Task, TaskReport
    from ..kernel import spool
    from ..kernel.spool import SpoolReader
    from ..kernel.tasks import Launch
    from ..replicas import ports
    from ..replicas.ports import HostPorts
    from ..runtimes import inside, repositories, visibility
    from ..sessions import logins
    from ..volumes import volumes
    from . import task_gpus
else:
    subprocess = LazyModule("subprocess")
    inside = LazyModule(".runtimes.inside")
    logins = LazyModule(".sessions.logins")
    ports = LazyModule(".replicas.ports")
    repositories = LazyModule(".runtimes.repositories")
    spool = LazyModule(".kernel.spool")
    task_gpus = LazyModule(".program.task_gpus")
    visibility = LazyModule(".runtimes.visibility")
    volumes = LazyModule(".volumes.volumes")

REPORTED = ("state", "at", "exit_status", "reason", "message", "pull", "username", "working_dir")
VOLUMES_REPORTED = ("mounted", "held", "held_by")  # left out if empty
LAUNCHES = 3  # failures after which we conclude that a task's supervisor can't start here
ROOM = 1 << 20  # with less than this free, the disk counts as full
SPOOL_BYTES = 1 << 30  # of output waiting for the server, all tasks together
SPOOL_LEAST = 1 << 25  # a task's share of that is at least this
Fetch = Callable[[str, str], None]  # url, place


class Roster:
    def __init__(
        self,
        data: str,
        runtimes: Dict[str, TaskRuntime],
        default: str,
        program: Callable[[], str],
        docker_socket: str,
        users: str = "",
    ) -> None:
        """`program` returns the path of the program that supervises a task, and writes the program if necessary."""
        self._data, self._runtimes, self._default = data, runtimes, default
        self.program, self._docker_socket, self._users = program, docker_socket, users
        self._readers: Dict[str, SpoolReader] = {}
        self._launched: List[Tuple[str, "subprocess.Popen[bytes]"]] = []
        self._failures: Dict[str, int] = {}

    @functools.cached_property
    def _ports(self) -> "HostPorts":
        return ports.HostPorts()

    def folder(self, task: str) -> TaskFolder:
        return TaskFolder(self._data, task)

    def runtime(self, task: str) -> Tuple[TaskRuntime, TaskFolder]:
        """A running task's runtime and folder. Raises OSError if the task doesn't run."""
        folder = self.folder(task)
        runtime = self._runtimes.get(folder.launch().get("runtime", ""))
        if runtime is None or folder.state().get("state") != "running":
            raise OSError("the job doesn't run")
        return runtime, folder

    def tasks(self) -> List[str]:
        """The tasks on disk. Unfinished creations are deleted, and ports in use are reserved."""
        created = []
        for task in list_tasks(self._data):
            launch = self.folder(task).launch()
            if launch:
                created.append(task)
                port = launch.get("host_port")
                if port and not self.ended(task):
                    self._ports.reserve(task, port)
            else:
                self.folder(task).delete()
        return created

    def create(self, task: str, spec: Task, gpus: Sequence[HostGpu]) -> None:
        """Save a task to disk. If it can't run here, it ends with the reason. Raises TaskError for a bad id."""
        if "/" in task or task in ("", ".", ".."):
            raise TaskError("executor_error", "a task's id can't be %r" % task)
        runtime = spec.get("runtime") or self._default
        chosen: List[str] = []
        vendor = ""
        port: Optional[int] = None
        trouble: Optional[TaskError] = None
        try:
            chosen, vendor = task_gpus.choose(spec, gpus, self._used_gpus)
            port, spec = self._choose_port(task, spec, runtime)
        except TaskError as problem:
            trouble = problem
        os.makedirs(self.folder(task).path, mode=0o711, exist_ok=True)
        stored = repositories.store_credentials(self.folder(task), spec)
        launch: Launch = {
            "runtime": runtime,
            "socket": self._docker_socket,
            "users": self._users,
            "gpus": chosen,
            "host_port": port,
            "spec": {**stored, "gpu_vendor": vendor, "gpu_buses": visibility.buses_of(chosen, gpus)},
        }
        self.folder(task).create(launch)
        if runtime not in self._runtimes:
            message = "this machine has no %s runtime; it has: %s" % (runtime, ", ".join(sorted(self._runtimes)))
            trouble = TaskError("executor_error", message)
        elif self._runtimes[runtime].isolation == ALONE and inside.taken(self._data, task):
            trouble = TaskError("executor_error", "this machine is a container that was made for another task")
        if trouble is not None:
            self.give_up(task, trouble)

    def _choose_port(self, task: str, spec: Task, runtime: str) -> Tuple[Optional[int], Task]:
        """A port for a service's replica that shares its host's network, and the spec with that port."""
        wanted = spec.get("service_port")
        if not wanted or not self._shares_network(runtime, spec):
            return None, spec
        port = self._ports.assign(task, int(wanted))
        ports = [each for each in spec.get("ports") or () if each != wanted]
        env = {**(spec.get("env") or {}), "DSTACK_SERVICE_PORT": str(port)}
        return port, {**spec, "ports": ports, "env": env}

    def _used_gpus(self) -> Set[str]:
        """The GPUs of tasks that haven't ended."""
        used: Set[str] = set()
        for task in list_tasks(self._data):
            if self.folder(task).state().get("state") != FINAL:
                used.update(self.folder(task).launch().get("gpus") or ())
        return used

    def launch(self, task: str, fetch: Fetch) -> None:
        """Fetch the task's archives, then start its supervisor. Archives make this slow: not for the loop's thread."""
        folder = self.folder(task)
        if folder.over():
            return
        for place, url in archives_of(folder):
            if not os.path.exists(place) and not folder.request():
                os.makedirs(folder.files, exist_ok=True)
                fetch(url, place)
        with open(os.path.join(folder.path, "supervisor.log"), "ab") as log:
            self._launched.append((task, self.start(folder.path, log)))

    def start(self, path: str, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        """The supervisor of the task in this folder. What is returned exits as soon as it has forked."""
        argv = [*interpreter.command(), self.program(), "supervise", path]
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def reap(self) -> None:
        """Reap the processes that started supervisors and exit as soon as they have forked. After `LAUNCHES` failures
        to start a supervisor, the task ends."""
        self._launched = [(task, child) for task, child in self._launched if not self._reaped(task, child)]

    def _reaped(self, task: str, child: "subprocess.Popen[bytes]") -> bool:
        if child.poll():
            self._failures[task] = self._failures.get(task, 0) + 1
            if self._failures[task] >= LAUNCHES and not self.folder(task).state().get("state") and self.orphaned(task):
                lines = (read_text(os.path.join(self.folder(task).path, "supervisor.log")) or "").strip().splitlines()
                message = "the task's supervisor fails to start on this machine: %s" % (lines or ["no output"])[-1]
                self.give_up(task, TaskError("executor_error", message))
        return child.returncode is not None

    def give_up(self, task: str, problem: TaskError) -> None:
        state = {"id": task, "state": FINAL, "at": micros(), "reason": problem.reason, "message": problem.message}
        self.folder(task).write_state(state)
        repositories.erase(self.folder(task))

    def orphaned(self, task: str) -> bool:
        """Is the task not over, and without a supervisor because that was killed or never started?"""
        folder = self.folder(task)
        return not folder.over() and not folder.supervised()

    def stop(self, task: str, grace: Optional[float]) -> None:
        if not self.folder(task).request():
            self.folder(task).write_request({"stop": True, "grace": grace})

    def abort(self, task: str) -> None:
        self.folder(task).write_request({"abort": True})

    def rekey(self, task: str, access: str, keys: List[str]) -> bool:
        """Let only these keys log in from now on, and end sessions of other keys. False if the task is gone."""
        folder = self.folder(task)
        if not folder.access():
            return False
        folder.write_access(access, keys)
        logins.rekey(folder)
        return True

    def on_host_network(self, task: str) -> bool:
        """Is the task in the machine's own network: as a plain process, or as one of several nodes?"""
        launch = self.folder(task).launch()
        return bool(launch) and self._shares_network(launch.get("runtime", ""), launch["spec"])

    def _shares_network(self, runtime: str, spec: Task) -> bool:
        found = self._runtimes.get(runtime)
        return found is not None and (found.isolation != CONTAINER or spec.get("network") == "host")

    def takes_logins(self, task: str) -> bool:
        launch = self.folder(task).launch()
        return bool(launch and launch["spec"].get("authorized_keys"))

    def roots(self, task: str) -> List[int]:
        """The ancestors of all of the task's processes: its SSH server and its supervisor."""
        supervisor = read_text(os.path.join(self.folder(task).path, "pid"))
        server = logins.process(self.folder(task))
        return [*([server] if server else []), *([int(supervisor)] if supervisor else [])]

    def ended(self, task: str) -> bool:
        return self.folder(task).state().get("state") == FINAL

    def over(self, task: str) -> bool:
        """Has the task ended, with its sessions and with everything unmounted?"""
        return self.folder(task).over() and logins.over(self.folder(task))

    def end_logins(self, tasks: List[str]) -> None:
        """End the SSH servers of those tasks that have ended."""
        for task in tasks:
            if self.ended(task):
                logins.end(self.folder(task))

    def remove(self, task: str) -> None:
        """Delete all traces of a finished task."""
        folder = self.folder(task)
        runtime = self._runtimes.get(folder.launch().get("runtime", ""))
        if runtime:
            runtime.remove(folder)
        held = volumes.TaskVolumes(folder, []).release()  # unless its supervisor has done so
        if held:
            raise OSError("; ".join(held.values()))
        logins.remove(folder)
        folder.delete()
        self._ports.release(task)
        self._readers.pop(task, None)
        self._failures.pop(task, None)

    # Reports ------------------------------------------------------------------------------------------------------

    def report(self, task: str) -> TaskReport:
        state = self.folder(task).state()
        report: Dict[str, Any] = {"id": task, "state": "preparing"}
        report.update({name: state[name] for name in REPORTED if state.get(name) is not None})
        report.update({name: state[name] for name in VOLUMES_REPORTED if state.get(name)})
        access = self.folder(task).access().get("access")
        if access is not None and report["state"] != FINAL:
            report["access"] = access
        if report["state"] in ("running", FINAL):
            sessions = logins.report(self.folder(task))
            report.update({name: sessions[name] for name in logins.REPORTED if sessions.get(name) is not None})
            if sessions.get("nodes") and report["state"] == "running":
                report["message"] = "; ".join(filter(None, (report.get("message"), sessions["nodes"])))
        if report["state"] != FINAL and self.disk_full():
            report["message"] = "the disk under %s is full; the task's output waits for room" % self._data
        return cast("TaskReport", report)

    def disk_full(self) -> bool:
        disk = os.statvfs(self._data)
        return disk.f_bavail * disk.f_frsize < ROOM

    def log(self, task: str) -> SpoolReader:
        if task not in self._readers:
            self._readers[task] = spool.SpoolReader(self.folder(task).log)
        return self._readers[task]

    def read_log(self, task: str, offset: int, limit: int) -> Tuple[int, List[Tuple[int, bytes]]]:
        return self.log(task).read(offset, limit)

    def cap_log(self, task: str, tasks: int) -> int:
        """Keep a task's output within its share of the disk, which `tasks` tasks use. Returns the bytes dropped."""
        self.log(task).make_room()
        return self.log(task).shrink_to(max(SPOOL_LEAST, SPOOL_BYTES // max(1, tasks)), micros())

    def running(self) -> List[TaskFolder]:
        folders = [self.folder(task) for task in list_tasks(self._data)]
        return [folder for folder in folders if folder.state().get("state") == "running"]


def archives_of(folder: TaskFolder) -> List[Tuple[str, str]]:
    """The archives that a task needs from the server before it starts: path and URL of each."""
    spec = folder.launch()["spec"]
    found = [(os.path.join(folder.files, str(at)), each["url"]) for at, each in enumerate(spec.get("files") or ())]
    repo = spec.get("repo")
    code = repo.get("code") if repo else None
    return [*found, (repositories.code_path(folder), code["url"])] if code else found

"""The agent's side of its tasks: start, stop, remove, adopt after a restart, and report.

Everything is read from the tasks' folders; the roster has no state that a restart would lose.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

from ..kernel import interpreter
from ..kernel.lazy import LazyModule
from ..kernel.task_runtime import ALONE, CONTAINER, TaskError, TaskRuntime, micros
from ..kernel.tasks import FINAL, TaskFolder, list_tasks, read_text

if TYPE_CHECKING:
    import subprocess

    from ..kernel import spool
    from ..kernel.spool import SpoolReader
    from ..replicas import ports
    from ..replicas.ports import HostPorts
    from ..runtimes import inside, repositories, visibility
    from ..sessions import logins
    from ..volumes import volumes
else:
    subprocess = LazyModule("subprocess")
    inside = LazyModule(".runtimes.inside")
    logins = LazyModule(".sessions.logins")
    ports = LazyModule(".replicas.ports")
    repositories = LazyModule(".runtimes.repositories")
    spool = LazyModule(".kernel.spool")
    visibility = LazyModule(".runtimes.visibility")
    volumes = LazyModule(".volumes.volumes")

REPORTED = ("state", "at", "exit_status", "reason", "message", "pull", "username", "working_dir")
VOLUMES_TOLD = ("mounted", "held", "held_by")  # left out where there are none
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
        """`program`: the path of the program that supervises a task, which is written there when it is asked for."""
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
        """What runs this task, and its folder. Raises OSError for one that doesn't run."""
        folder = self.folder(task)
        runtime = self._runtimes.get(folder.launch().get("runtime", ""))
        if runtime is None or folder.state().get("state") != "running":
            raise OSError("the job doesn't run")
        return runtime, folder

    def tasks(self) -> List[str]:
        """Tasks on disk; unfinished creations are deleted."""
        whole = []
        for task in list_tasks(self._data):
            launch = self.folder(task).launch()
            if launch:
                whole.append(task)
                if launch.get("host_port") and not self.ended(task):
                    self._ports.keep(task, int(launch["host_port"]))
            else:
                self.folder(task).delete()
        return whole

    def create(self, task: str, spec: Dict[str, Any], gpus: List[Dict[str, Any]]) -> None:
        """Save the task. From here on it is ours, whatever happens."""
        if "/" in task or task in ("", ".", ".."):
            raise TaskError("executor_error", "a task's id can't be %r" % task)
        runtime = spec.get("runtime") or self._default
        chosen: List[str] = []
        vendor = ""
        port: Optional[int] = None
        trouble: Optional[TaskError] = None
        try:
            chosen, vendor = self._choose_gpus(spec, gpus)
            port, spec = self._choose_port(task, spec, runtime)
        except TaskError as problem:
            trouble = problem
        os.makedirs(self.folder(task).path, mode=0o711, exist_ok=True)
        spec = repositories.put_aside(self.folder(task), spec)
        launch = {
            "runtime": runtime,
            "socket": self._docker_socket,
            "users": self._users,
            "gpus": chosen,
            "host_port": port,
            "spec": dict(spec, gpu_vendor=vendor, gpu_buses=visibility.buses_of(chosen, gpus)),
        }
        self.folder(task).create(launch)
        if runtime not in self._runtimes:
            words = "this machine has no %s runtime; it has: %s" % (runtime, ", ".join(sorted(self._runtimes)))
            trouble = TaskError("executor_error", words)
        elif self._runtimes[runtime].isolation == ALONE and inside.taken(self._data, task):
            trouble = TaskError("executor_error", "this machine is a container that was made for another task")
        if trouble is not None:
            self.give_up(task, trouble)

    def _choose_port(self, task: str, spec: Dict[str, Any], runtime: str) -> Tuple[Optional[int], Dict[str, Any]]:
        """The port of a service's replica that shares its host's network, and its spec, which tells it that one."""
        wanted = spec.get("service_port")
        if not wanted or not self._shares_network(runtime, spec):
            return None, spec
        port = self._ports.give(task, int(wanted))
        others = [each for each in spec.get("ports") or () if each != wanted]
        return port, dict(spec, ports=others, env=dict(spec.get("env") or {}, DSTACK_SERVICE_PORT=str(port)))

    def _choose_gpus(self, spec: Dict[str, Any], gpus: List[Dict[str, Any]]) -> Tuple[List[str], str]:
        wanted = spec.get("gpus") or 0
        vendor = gpus[0]["vendor"] if gpus else ""
        if spec.get("gpu_devices"):
            return [str(name) for name in spec["gpu_devices"]], vendor
        if wanted == -1:
            return [gpu["id"] for gpu in gpus], vendor
        taken: Set[str] = set()
        for task in list_tasks(self._data) if wanted else ():
            if self.folder(task).state().get("state") != FINAL:
                taken.update(self.folder(task).launch().get("gpus") or ())
        free = [gpu["id"] for gpu in gpus if gpu["id"] not in taken]
        if len(free) < wanted:
            raise TaskError("executor_error", "%d GPUs wanted, %d of %d free here" % (wanted, len(free), len(gpus)))
        return free[:wanted], vendor

    def launch(self, task: str, fetch: Fetch) -> None:
        """Fetch the task's archives, then start its supervisor. Can take long: not for the loop's thread."""
        folder = self.folder(task)
        if folder.over():
            return
        for place, url in archives_of(folder):
            if not os.path.exists(place) and not folder.request():
                os.makedirs(folder.files, exist_ok=True)
                fetch(url, place)
        argv = [*interpreter.command(), self.program(), "supervise", folder.path]
        with open(os.path.join(folder.path, "supervisor.log"), "ab") as log:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._launched.append((task, child))

    def reap(self) -> None:
        """A supervisor forks itself away, so the process we started exits at once and is reaped here. If it fails
        `LAUNCHES` times before that, the task can't run here and ends."""
        self._launched = [(task, child) for task, child in self._launched if not self._reaped(task, child)]

    def _reaped(self, task: str, child: "subprocess.Popen[bytes]") -> bool:
        if child.poll():
            self._failures[task] = self._failures.get(task, 0) + 1
            if self._failures[task] >= LAUNCHES and not self.folder(task).state().get("state") and self.orphaned(task):
                said = (read_text(os.path.join(self.folder(task).path, "supervisor.log")) or "").strip().splitlines()
                message = "the task's supervisor fails to start on this machine: %s" % (said or ["no output"])[-1]
                self.give_up(task, TaskError("executor_error", message))
        return child.returncode is not None

    def give_up(self, task: str, problem: TaskError) -> None:
        state = {"id": task, "state": FINAL, "at": micros(), "reason": problem.reason, "message": problem.message}
        self.folder(task).write_state(state)
        repositories.erase(self.folder(task))

    def orphaned(self, task: str) -> bool:
        """Not over, and without a supervisor: that was killed, or never started."""
        folder = self.folder(task)
        return not folder.over() and not folder.supervised()

    def stop(self, task: str, grace: Optional[float]) -> None:
        if not self.folder(task).request():
            self.folder(task).write_request({"stop": True, "grace": grace})

    def abort(self, task: str) -> None:
        self.folder(task).write_request({"abort": True})

    def rekey(self, task: str, access: str, keys: List[str]) -> bool:
        """Only these keys may log in from now on; whoever is here with another one has to leave. False: it is gone."""
        folder = self.folder(task)
        if not folder.access():
            return False
        folder.write_access(access, keys)
        logins.rekey(folder)
        return True

    def beside(self, task: str) -> bool:
        """Is it in the machine's own network: a plain process, or one of several nodes?"""
        launch = self.folder(task).launch()
        return self._shares_network(launch.get("runtime", ""), launch.get("spec") or {})

    def _shares_network(self, runtime: str, spec: Dict[str, Any]) -> bool:
        found = self._runtimes.get(runtime)
        return found is not None and (found.isolation != CONTAINER or spec.get("network") == "host")

    def takes_logins(self, task: str) -> bool:
        return bool((self.folder(task).launch().get("spec") or {}).get("authorized_keys"))

    def roots(self, task: str) -> List[int]:
        """The processes that all of the task's stand below: its SSH server, and its supervisor."""
        supervisor = read_text(os.path.join(self.folder(task).path, "pid"))
        server = logins.process(self.folder(task))
        return [*([server] if server else []), *([int(supervisor)] if supervisor else [])]

    def ended(self, task: str) -> bool:
        return self.folder(task).state().get("state") == FINAL

    def over(self, task: str) -> bool:
        """Has it ended, with its sessions, and is everything unmounted?"""
        return self.folder(task).over() and logins.over(self.folder(task))

    def end_logins(self, tasks: List[str]) -> None:
        """Those of ended tasks, at once."""
        for task in tasks:
            if self.ended(task):
                logins.end(self.folder(task))

    def remove(self, task: str) -> None:
        """Delete all traces of a finished task."""
        folder = self.folder(task)
        runtime = self._runtimes.get(folder.launch().get("runtime", ""))
        if runtime:
            runtime.remove(folder)
        held = volumes.TaskVolumes(folder, []).release()  # of one whose supervisor never came to it
        if held:
            raise OSError("; ".join(held.values()))
        logins.remove(folder)
        folder.delete()
        self._ports.release(task)
        self._readers.pop(task, None)
        self._failures.pop(task, None)

    # What to report -----------------------------------------------------------------------------------------------

    def report(self, task: str) -> Dict[str, Any]:
        state = self.folder(task).state()
        report = {"id": task, "state": "preparing"}
        report.update({name: state[name] for name in REPORTED if state.get(name) is not None})
        report.update({name: state[name] for name in VOLUMES_TOLD if state.get(name)})
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
        return report

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
        """Keep the output of one of so many tasks within its share of the disk. Returns how many bytes were dropped."""
        self.log(task).ease()
        return self.log(task).keep_within(max(SPOOL_LEAST, SPOOL_BYTES // max(1, tasks)), micros())

    def running(self) -> List[TaskFolder]:
        folders = [self.folder(task) for task in list_tasks(self._data)]
        return [folder for folder in folders if folder.state().get("state") == "running"]


def archives_of(folder: TaskFolder) -> List[Tuple[str, str]]:
    """What a task needs from the server, before it starts: where each archive goes, and its URL."""
    spec = folder.launch()["spec"]
    found = [(os.path.join(folder.files, str(at)), each["url"]) for at, each in enumerate(spec.get("files") or ())]
    code = (spec.get("repo") or {}).get("code")
    return [*found, (repositories.code_path(folder), code["url"])] if code else found

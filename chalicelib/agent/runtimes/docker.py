"""The runtime of containers. The supervisor attaches to a container before it starts, so it gets all of its output.

The Docker engine stores the same output, byte for byte, in its `local` log. When the attachment is lost (the engine or
the supervisor was restarted), the log is read from its start and the bytes that are spooled already are skipped, so
nothing is lost or repeated. The container has the task's id as its name and label, by which a new supervisor finds it;
it stays until `remove`.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
import socket
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, List, Optional, Set, Tuple
from urllib.parse import quote

from ..kernel.lazy import LazyModule
from ..kernel.task_runtime import COLUMNS, CONTAINER, READ_BYTES, ROWS, TaskContext, TaskError, TaskUsage
from ..kernel.tasks import TaskFolder
from .docker_client import DockerClient, DockerError, DockerUnreachable, container_name, registry_header, split_image
from .image_access import ImageAccess
from .users import Users

if TYPE_CHECKING:
    import tarfile
    import tempfile

    from ..kernel import process_tree
    from ..kernel.tasks import LaunchedTask
    from . import (
        accounts,
        container_users,
        docker_repositories,
        fabric,
        files,
        listening,
        node_ssh,
        sidecars,
        steps,
        visibility,
    )
    from .visibility import TaskCards
else:
    tarfile = LazyModule("tarfile")
    tempfile = LazyModule("tempfile")
    container_users = LazyModule(".runtimes.container_users")
    docker_repositories = LazyModule(".runtimes.docker_repositories")
    fabric = LazyModule(".runtimes.fabric")
    accounts = LazyModule(".runtimes.accounts")
    files = LazyModule(".runtimes.files")
    listening = LazyModule(".runtimes.listening")
    node_ssh = LazyModule(".runtimes.node_ssh")
    process_tree = LazyModule(".kernel.process_tree")
    sidecars = LazyModule(".runtimes.sidecars")
    steps = LazyModule(".runtimes.steps")
    visibility = LazyModule(".runtimes.visibility")

LABEL = "dstack.task"
OWNER = "dstack.agent"
RETRY_EVERY = 1.0
FULL_DISK = "no space left on device"
SHELLS = ("/bin/sh", "/bin/bash")
DOCKER_SECONDS = 120.0  # how long a new task waits for an unreachable engine
REPORT_EVERY = 1.0
STORAGE_SECONDS = 600.0  # for which the engine's folder is cached; changing it takes a restart of the engine
LOG_OPTIONS = {"max-size": "1g", "max-file": "2"}
PROCESSES_MOST = 16384
INNER_LAYERS = "/var/lib/docker"  # of an engine in the container; can't be on the container's own layers
WORKFLOW = "/workflow"  # the working folder of a task with a repository if its image's is `/`, which isn't empty
FILES_MOST, FILES_HARD = 65536, 524288


class DockerRuntime:
    name = "docker"
    isolation = CONTAINER

    def __init__(self, data: str, path: str, user_ids: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._docker, self._owner, self._clock = DockerClient(path), data, clock  # the folder identifies an agent
        self._users = Users(user_ids)  # for git on the host, if root runs the agent
        self._access = ImageAccess(data)
        self._storage, self._storage_until = "", 0.0

    def problem(self) -> str:
        return self._docker.ping()

    def storage(self) -> str:
        """Cached, because the health check calls this every few seconds, and an engine starts processes to answer."""
        now = self._clock()
        if not self._storage or now >= self._storage_until:
            try:
                info = self._docker.call("GET", "/info", timeout=10.0) or {}
            except DockerError:
                return ""
            self._storage, self._storage_until = str(info.get("DockerRootDir") or ""), now + STORAGE_SECONDS
        return self._storage

    def begin(self, context: TaskContext) -> "DockerWork":
        """Start or adopt the container. Waits for an engine that is restarting: a new task for a while, a running one
        without limit."""
        name = container_name(context.folder.task)
        ran = context.state.get("state") == "running"
        patience = time.monotonic() + DOCKER_SECONDS
        while True:
            try:
                found = self._docker.container(name)
                if found is not None and found["State"]["Status"] != "created":
                    return DockerWork(self._docker, name, context.spooled, rebooted=context.rebooted)
                if ran:
                    raise TaskError("executor_error", "the task's container was removed by someone else")
                return self._create(context, name)
            except DockerError as problem:
                if not isinstance(problem, DockerUnreachable) or (not ran and time.monotonic() > patience):
                    raise TaskError("creating_container_error", "Docker: %s" % problem.message) from None
            if ran:
                time.sleep(RETRY_EVERY)
            else:
                context.pause(RETRY_EVERY)

    def _create(self, context: TaskContext, name: str) -> "DockerWork":
        image = context.spec.get("image")
        if not image:
            raise TaskError("creating_container_error", "the task names no image to run in")
        self._ensure_image(context, image)
        if context.spec.get("network") == "host":
            listening.check(context.spec)
        details = self._docker.image(image) or {}
        working_dir = working_dir_of(context.spec, details)
        self._docker.remove(name)
        labels = {LABEL: context.folder.task, OWNER: self._owner}
        sidecars.start(self._docker, context, labels, "%s=%s" % (OWNER, self._owner), self._clock)
        body = container_body(
            context.spec, working_dir, visibility.cards_of(context.spec, context.gpus), labels, venv_dir(details)
        )
        fabric.add_library_path(context.spec, body, (details.get("Config") or {}).get("Env") or ())
        mounts = context.volumes.for_container()
        body["HostConfig"]["Mounts"] = mounts + fabric.mounts(context.spec, [mount["Target"] for mount in mounts])
        self._docker.call("POST", "/containers/create", {"name": name}, body)
        put = functools.partial(self._put, name)
        user = user_text(context.spec.get("user") or (details.get("Config") or {}).get("User") or "root")
        check_shell(self._docker, name, context.spec)
        context.volumes.hand_over(lambda: docker_repositories.owner_of(self._docker, name, user))
        context.volumes.check_visible(lambda path: self._docker.mode(name, path))
        docker_repositories.add_home(self._docker, put, name, context.spec.get("home_dir"), user)
        home, shell = container_users.home_of_user(context.spec, details, user), context.spec.get("shell") or "/bin/sh"
        container_users.give_name(self._docker, put, name, user, home, shell)
        code = files.code_dir(context.spec, working_dir, home_of(context.spec))
        docker_repositories.bring(self._docker, put, context, name, code, user, self._users)
        self._bring_files(context, name, working_dir)
        problem = self._equip(context, name, user)
        work = DockerWork(self._docker, name, context.spooled, attach=True)
        self._docker.call("POST", "/containers/%s/start" % name)
        work.resize()
        context.report("running", username=user, working_dir=working_dir, message=problem)
        return work

    def _ensure_image(self, context: TaskContext, image: str) -> None:
        """Pull the image, unless the machine has it under a tag that isn't `latest` and the project may use it."""
        name, tag = split_image(image)
        project, task = str(context.spec.get("project_id") or ""), context.folder.task
        image_id = self._image_id(image)
        allowed = bool(image_id) and self._access.allows(project, image_id) and not self._unrecorded(image_id)
        if allowed and tag != "latest":
            return
        before = self._access.begin_pull(task, image, image_id)
        context.report("pulling", pull=Pull().progress())
        try:
            self._pull(context, name, tag)
        except DockerError as problem:
            if isinstance(problem, DockerUnreachable):
                raise
            self._record(project, image, before, allowed)
            self._access.end_pull(task)
            if not allowed:
                raise TaskError("creating_container_error", pull_failure(image, problem.message)) from None
        else:
            self._record(project, image, before, True)
            self._access.end_pull(task)

    def _unrecorded(self, image_id: str) -> bool:
        """Did a pull bring this image that isn't recorded yet?"""
        return any(image_id != was and self._image_id(image) == image_id for image, was in self._access.pulls())

    def _record(self, project: str, image: str, before: str, allowed: bool) -> None:
        now = self._image_id(image)
        if not now:
            return
        with self._access.locked():
            if now != before:
                self._access.restrict(now)
            if allowed:
                self._access.allow(project, now)
                self._access.retain([now, *self._docker.image_ids()])

    def _image_id(self, image: str) -> str:
        """The id of the engine's image with this name; empty if there is none."""
        return str((self._docker.image(image) or {}).get("Id") or "")

    def _pull(self, context: TaskContext, name: str, tag: str) -> None:
        pull, reported = Pull(), time.monotonic()
        query = {"fromImage": name, "tag": tag}
        headers = registry_header(context.spec.get("registry_auth"))
        for line in self._docker.lines("POST", "/images/create", query, headers, lambda: context.pause(0)):
            context.pause(0)
            if line.get("error"):
                raise DockerError(500, line["error"])
            pull.take(line)
            if time.monotonic() - reported >= REPORT_EVERY:
                reported = time.monotonic()
                context.report("pulling", pull=pull.progress())
        context.report("pulling", pull=dict(pull.progress(), is_total_bytes_final=True))

    def _bring_files(self, context: TaskContext, name: str, working_dir: str) -> None:
        home = home_of(context.spec)
        for number, mapping in enumerate(context.spec.get("files") or ()):
            target = files.resolve(mapping["path"], working_dir, home)
            with tempfile.TemporaryFile(dir=context.folder.path) as packed:
                archive = os.path.join(context.folder.files, str(number))
                files.repack(archive, target, files.is_place(mapping["path"]), packed)
                self._put(name, packed)
        with tempfile.TemporaryFile(dir=context.folder.path) as packed:
            texts = {files.HOSTFILE: (context.spec.get("hostfile") or "", 0o644)}
            if context.spec.get("steps"):
                texts[steps.PLACE] = ("", 0o666)  # writable for any user that the job may become
            files.pack_texts(texts, packed)
            self._put(name, packed)

    def _equip(self, context: TaskContext, name: str, user: str) -> str:
        """Give a job on several nodes the means to log in to the others; returns why it can't."""
        if not context.spec.get("node_ssh"):
            return ""
        with tempfile.TemporaryFile(dir=context.folder.path) as packed:
            server = accounts.server_user()
            problem = node_ssh.equip_container(self._docker, name, context.spec, user, server, packed)
            if not problem:
                self._put(name, packed)
            return problem

    def _put(self, name: str, packed: BinaryIO) -> None:
        size = packed.tell()
        packed.seek(0)
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(size)}
        self._docker.call("PUT", "/containers/%s/archive" % name, {"path": "/"}, packed, headers)

    def usage(self, folder: TaskFolder) -> Optional[TaskUsage]:
        try:
            path = "/containers/%s/stats" % container_name(folder.task)
            return usage_of(self._docker.call("GET", path, {"stream": 0, "one-shot": 1}, timeout=10.0) or {})
        except DockerError:
            return None  # not running, or the engine is unreachable: no sample this time

    def _running(self, folder: TaskFolder) -> Dict[str, Any]:
        try:
            found = self._docker.container(container_name(folder.task))
        except DockerError as problem:
            raise OSError("Docker: %s" % problem.message) from None
        if found is None or not found["State"]["Running"]:
            raise OSError("the job's container doesn't run")
        return found

    def network(self, folder: TaskFolder) -> Optional[int]:
        found = self._running(folder)
        if (found.get("HostConfig") or {}).get("NetworkMode") == "host":
            return None
        return int(found["State"]["Pid"])

    def address(self, folder: TaskFolder) -> str:
        attached = (self._running(folder).get("NetworkSettings") or {}).get("Networks") or {}
        return next((str(each["IPAddress"]) for each in attached.values() if each.get("IPAddress")), "")

    def remove(self, folder: TaskFolder) -> None:
        pull = self._access.pull(folder.task)
        if pull is not None:  # the task ended during its pull, which the engine may have completed
            self._record("", *pull, allowed=False)
        docker_repositories.remove(folder.task)
        sidecars.remove(self._docker, folder.task)
        self._docker.remove(container_name(folder.task))

    def sweep(self, known: Set[str]) -> None:
        for found in self._docker.labelled("%s=%s" % (OWNER, self._owner)):
            if found["Labels"].get(LABEL) not in known:
                self._docker.remove(found["Id"])


def pull_failure(image: str, message: str) -> str:
    full = "the disk of this machine's Docker engine is full (%s); free some, or ask for more `disk`" % message
    return "image %s can't be pulled: %s" % (image, full if FULL_DISK in message.lower() else message)


class Pull:
    """The progress of a pull, summed over the image's layers."""

    def __init__(self) -> None:
        self._layers: Dict[str, List[int]] = {}  # downloaded, extracted, total

    def take(self, line: Dict[str, Any]) -> None:
        layer, status, detail = line.get("id"), line.get("status"), line.get("progressDetail") or {}
        if not layer or status not in ("Downloading", "Extracting", "Download complete", "Pull complete"):
            return
        counts = self._layers.setdefault(layer, [0, 0, 0])
        if status == "Downloading":
            counts[0], counts[2] = detail.get("current", counts[0]), max(counts[2], detail.get("total", 0))
        elif status == "Extracting":
            counts[0], counts[1] = counts[2], detail.get("current", counts[1])
        else:
            counts[0] = counts[2]
            counts[1] = counts[2] if status == "Pull complete" else counts[1]

    def progress(self) -> Dict[str, Any]:
        sums = [sum(layer[column] for layer in self._layers.values()) for column in range(3)]
        final = all(layer[2] for layer in self._layers.values()) and bool(self._layers)
        return {
            "downloaded_bytes": sums[0],
            "extracted_bytes": sums[1],
            "total_bytes": sums[2],
            "is_total_bytes_final": final,
        }


def user_text(user: Any) -> str:
    if not isinstance(user, dict):
        return str(user)
    name = user.get("username") if user.get("username") is not None else user.get("uid")
    group = user.get("groupname") if user.get("groupname") is not None else user.get("gid")
    return str(name if name is not None else "") + (":%s" % group if group is not None else "")


def home_of(spec: LaunchedTask) -> str:
    """The folder for `~` in the container, by convention: the container's list of users isn't read."""
    user = user_text(spec.get("user") or "").partition(":")[0]
    return str(spec.get("home_dir") or ("/root" if user in ("", "0", "root") else "/home/" + user))


def working_dir_of(spec: LaunchedTask, image: Dict[str, Any]) -> str:
    base = (image.get("Config") or {}).get("WorkingDir") or "/"
    if base == "/" and spec.get("repo"):
        base = WORKFLOW
    return files.resolve(spec.get("working_dir") or "", base, home_of(spec))


def venv_dir(image: Dict[str, Any]) -> str:
    """The image's Python environment: the one that it declares, or the prefix of the official Python images. Empty if
    the image mentions no Python."""
    variables = dict(item.partition("=")[::2] for item in (image.get("Config") or {}).get("Env") or ())
    return variables.get("VIRTUAL_ENV") or ("/usr/local" if "PYTHON_VERSION" in variables else "")


def check_shell(docker: DockerClient, name: str, spec: LaunchedTask) -> None:
    """Raise TaskError if the image lacks the commands' shell: the container would only end with status 127."""
    shell = spec.get("shell")
    if not shell or docker.holds(name, shell):
        return
    image, other = spec["image"], next((path for path in SHELLS if docker.holds(name, path)), "")
    if other:
        advice = "%s to run `commands` in; set `shell: %s`" % (shell, os.path.basename(other))
    else:
        advice = (
            "shell to run `commands` in; put the program in `entrypoint`, and its arguments one by one in `commands`"
        )
    raise TaskError("creating_container_error", "image %s has no %s" % (image, advice))


def container_body(
    spec: LaunchedTask, working_dir: str, cards: TaskCards, labels: Dict[str, str], venv: str = ""
) -> Dict[str, Any]:
    """The body of the engine's create call for the task's container."""
    gpu_settings, gpu_variables = visibility.container_settings(cards, bool(spec.get("privileged")))
    unhidden = spec.get("privileged") or cards.vendor == "google"  # a privileged one sees all nodes of its host
    defaults = visibility.process_variables(cards) if unhidden else {}
    paths = files.with_places(spec, working_dir, home_of(spec), "/" + files.HOSTFILE, venv)
    variables = {**defaults, **paths, **gpu_variables, **steps.variable(spec, "/" + steps.PLACE)}
    home = spec.get("home_dir")
    if home:
        variables.setdefault("HOME", home)
    files_soft, files_hard = open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    host: Dict[str, Any] = {
        "Privileged": bool(spec.get("privileged")),
        "LogConfig": {"Type": "local", "Config": LOG_OPTIONS},
        "ConsoleSize": [ROWS, COLUMNS],  # for newer engines; on older ones the size is set after the start
        "NetworkMode": spec.get("network") or "bridge",
        "PidsLimit": PROCESSES_MOST,
        "Ulimits": [{"Name": "nofile", "Soft": files_soft, "Hard": files_hard}],
        "Init": True,  # reaps zombies, and lets a signal end a first process that has no handler for it
    }
    if spec.get("memory_bytes"):
        host["Memory"] = host["MemorySwap"] = int(spec["memory_bytes"])
    if spec.get("cpu"):
        host["NanoCpus"] = int(float(spec["cpu"]) * 1e9)
    if spec.get("network") == "host":
        host["CapDrop"] = ["NET_RAW"]  # it would let the container's root read other programs' packets
    host.update(gpu_settings)
    fabric.add_to_host_config(spec, host)
    if spec.get("shm_bytes") and host.get("IpcMode") != "host":  # not every engine takes both
        host["ShmSize"] = int(spec["shm_bytes"])
    body: Dict[str, Any] = {
        "Image": spec["image"],
        "Env": ["%s=%s" % item for item in sorted(variables.items())],
        "Tty": True,
        "Labels": labels,
        "WorkingDir": working_dir,
        "HostConfig": host,
    }
    if spec.get("docker"):
        body["Volumes"] = {INNER_LAYERS: {}}
    if spec.get("user"):
        body["User"] = user_text(spec["user"])
    if spec.get("commands"):
        body["Entrypoint"], body["Cmd"] = spec["commands"][:1], spec["commands"][1:]
    return body


def open_files(hard: int) -> Tuple[int, int]:
    """The soft and hard limits of open files. `hard` is the agent's own hard limit (-1: none), since an engine in a
    container can't give more than it has."""
    most = FILES_HARD if hard == resource.RLIM_INFINITY else min(hard, FILES_HARD)
    return min(FILES_MOST, most), most


def usage_of(stats: Dict[str, Any]) -> Optional[TaskUsage]:
    memory = stats.get("memory_stats") or {}
    if "usage" not in memory:
        return None
    details = memory.get("stats") or {}
    cache = details.get("total_inactive_file", details.get("inactive_file", 0))
    return TaskUsage(
        int(stats["cpu_stats"]["cpu_usage"]["total_usage"]) // 1000,
        int(memory["usage"]),
        max(0, int(memory["usage"]) - int(cache)),
    )


class DockerWork:
    def __init__(
        self, client: DockerClient, name: str, spooled: int, attach: bool = False, rebooted: bool = False
    ) -> None:
        self._docker, self._name, self._position = client, name, spooled
        self._rebooted = rebooted
        self._signalled = False
        self._socket: Optional[socket.socket] = None
        self._buffer = b""
        self._skip = 0
        self._retry_at = 0.0
        self._status: Optional[int] = None
        self._lost = False  # the output broke off; its remainder is in the engine's log
        self._out_of_memory = False
        self._connect(attach)

    def _connect(self, attach: bool) -> None:
        query: Dict[str, Any] = {"stdout": 1, "stderr": 1}
        if attach:
            upgrade = {"Upgrade": "tcp", "Connection": "Upgrade"}
            path = "/containers/%s/attach" % quote(self._name)
            self._socket, first = self._docker.stream("POST", path, dict(query, stream=1), upgrade)
            self._skip = 0
        else:
            path = "/containers/%s/logs" % quote(self._name)
            self._socket, first = self._docker.stream("GET", path, dict(query, follow=1))
            self._skip = self._position
        self._socket.setblocking(False)
        self._buffer = self._new(first)

    def _new(self, data: bytes) -> bytes:
        """The part of `data` that isn't spooled yet."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._position += len(data) - skipped
        return data[skipped:]

    def resize(self) -> None:
        try:
            self._docker.call("POST", "/containers/%s/resize" % self._name, {"h": ROWS, "w": COLUMNS})
        except DockerError:
            return  # already ended: the terminal's size no longer matters

    def fileno(self) -> int:
        return self._socket.fileno() if self._socket is not None else -1

    def wake_at(self) -> float:
        """The time to call `ended` although nothing can be read."""
        return self._retry_at if self._socket is None and self._status is None else float("inf")

    def read(self) -> bytes:
        data, self._buffer = self._buffer, b""
        while self._socket is not None and not data:
            try:
                part = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                part = b""  # the engine is unreachable; `ended` finds out the container's state
            if not part:
                self._socket.close()
                self._socket = None
                break
            data = self._new(part)
        return data

    def ended(self) -> Optional[int]:
        """Check the container once its output has ended: it has exited, or the connection is lost and is reopened."""
        if self._socket is not None or self._buffer or self._status is not None or time.monotonic() < self._retry_at:
            return self._status
        try:
            self._check_state()
        except DockerUnreachable:  # it is restarting: the container goes on, or its end shows later
            self._lost, self._retry_at = True, time.monotonic() + RETRY_EVERY
        return self._status

    def _check_state(self) -> None:
        found = self._docker.container(self._name)
        if found is None:
            raise TaskError("executor_error", "the task's container was removed by someone else")
        if found["State"]["Running"]:  # often still true for a moment after the last output
            try:
                self._docker.call("POST", "/containers/%s/wait" % self._name, timeout=1.0)
            except DockerUnreachable:
                self._lost = True
            found = self._docker.container(self._name) or found
        state = found["State"]
        if self._lost:
            self._lost = False
            self._connect(attach=False)
        elif not state["Running"]:
            self._check_cause(state)
            self._status, self._out_of_memory = int(state["ExitCode"]), bool(state.get("OOMKilled"))

    def _check_cause(self, state: Dict[str, Any]) -> None:
        """Raise TaskError if the machine or the engine was shut down: then the exit status isn't the task's own."""
        if self._rebooted:
            raise TaskError("executor_error", "the machine restarted; the task ended with it")
        if not self._signalled and self._docker.ended_by_engine(self._name, state.get("StartedAt") or ""):
            raise TaskError(
                "executor_error",
                "the container was stopped from outside, by the Docker engine when it was stopped or by `docker stop`; "
                "with `live-restore` in the engine's daemon.json, containers outlive it",
            )

    def signal_politely(self) -> None:
        self._signal(process_tree.end_politely, "SIGINT")

    def signal_firmly(self) -> None:
        self._signal(lambda pids: process_tree.send(pids, signal.SIGTERM), "SIGTERM")

    def _signal(self, send: Callable[[List[int]], None], otherwise: str) -> None:
        """Signal each process in the container by its pid on the host; if that isn't allowed, the first one."""
        self._signalled = True
        try:
            found = self._docker.container(self._name)
            first = found["State"]["Pid"] if found else 0
            if not first:
                return
            try:
                send(process_tree.descendants(first) or [first])
            except PermissionError:
                self._docker.call("POST", "/containers/%s/kill" % self._name, {"signal": otherwise})
        except DockerError:
            return  # just ended, or the engine is unreachable: the kill that follows is repeated until it works

    def kill(self) -> None:
        self._signalled = True
        try:
            self._docker.call("POST", "/containers/%s/kill" % self._name)
        except DockerError:
            return  # it has just ended, or the supervisor repeats the kill

    def out_of_memory(self) -> bool:
        return self._out_of_memory

    def step(self) -> str:
        try:
            return docker_repositories.text_of(self._docker, self._name, "/" + steps.PLACE)
        except (DockerError, OSError, tarfile.TarError):
            return ""  # the engine is restarting

    def finish(self) -> bytes:
        return b""  # the output was read to its end before

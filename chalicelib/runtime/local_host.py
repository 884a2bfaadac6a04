"""This machine's agent, as a child that outlives the server.

The agent runs in its own process session, so that `kill -9` of the server leaves it and its jobs alone. The next server
finds the agent's lock held and adopts it; if the lock is free, it starts a new agent. Waiting for the lock tells us
that an agent died, even if another process started it. An agent whose instance was deleted by the user isn't started
again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from chalicelib.domain import keys
from chalicelib.domain.instances import HostFacts, Instance, InstanceStatus
from chalicelib.domain.offers import Resources
from chalicelib.domain.runs import Run
from chalicelib.domain.tenants import Project, User
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.planning.machines.instance import resources_of
from chalicelib.runtime.settings import ServerSettings
from chalicelib.store import nouns
from chalicelib.usecases.agents.credentials import readmit
from chalicelib.usecases.context import Plane
from chalicelib.usecases.runs import runs

log = logging.getLogger(__name__)

LOCK = "lock"  # held by the agent while it runs, with its pid inside
CREDENTIAL = "credential"  # the agent's, received for the bootstrap token
ADDRESS = "server"  # the server's address, which the agent rereads
MOST_LOG = 16 * 1024 * 1024  # bytes of the agent's own log
_FOLDER = re.compile(r"agent(-[0-9a-f]{8})?")  # of an instance of this machine, in the data folder


def tidy(data: Path, folders: Collection[Path]) -> None:
    """Delete the folders of agents whose instances are gone, and limit the logs of those in `folders`. A folder with
    tasks stays: they may still be running."""
    for other in data.glob("agent*"):
        if other in folders or not _FOLDER.fullmatch(other.name) or not other.is_dir():
            continue
        if not _held(other / LOCK) and not any((other / "tasks").glob("*")):
            try:
                shutil.rmtree(other)
            except OSError as error:  # it only takes up space; the next start tries again
                log.warning("%s can't be deleted: %s", other, error.strerror)
    for folder in folders:
        cut(folder / "agent.log")


def cut(path: Path, most: int = MOST_LOG) -> None:
    """Cut an oversized log to its second half. A process that has it open continues at its new end."""
    if path.exists() and path.stat().st_size > most:
        with path.open("r+b") as file:
            file.seek(-(most // 2), os.SEEK_END)
            rest = file.read().partition(b"\n")[2]
            file.seek(0)
            file.write(rest)
            file.truncate()


def _held(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class LocalAgent:
    """Keeps an agent of this machine running."""

    def __init__(
        self, plane: Plane, folder: Path, instance_id: str, url: str, program: Path, options: Sequence[str] = ()
    ) -> None:
        self._plane, self.folder, self._instance_id = plane, folder, instance_id
        self._url, self._program, self._options = url, program, options
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(self.folder / ADDRESS, self._url + "\n")
        if not (self.folder / CREDENTIAL).exists():
            readmit(self._plane, self._instance_id)  # a wiped folder would lock its agent out for good
        token = bootstrap_token(self._plane.install_key, self._instance_id, 0)
        _write_private(self.folder / "bootstrap.token", token)
        threading.Thread(target=self._supervise, name="local-agent", daemon=True).start()

    def _supervise(self) -> None:
        """Start an agent whenever the lock is free; waiting for the lock costs nothing."""
        delay = 0.0
        while not self._stopping.wait(delay):
            with (self.folder / LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if self._stopping.is_set():
                return
            if self._gone():
                log.warning(
                    "this machine was deleted from its fleet and runs no jobs; restart the server to add it again"
                )
                return
            self._process = self._spawn()
            code = self._process.wait()
            if not self._stopping.is_set() and not self._gone():
                log.warning("the local agent exited with status %s; restarting it", code)
            delay = 1.0

    def _instance(self) -> Instance | None:
        return nouns.find(self._plane.store, Instance, keys.instance(self._instance_id))

    def _gone(self) -> bool:
        instance = self._instance()
        return instance is None or instance.status is InstanceStatus.terminated

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(self._program), "--server", self._url, "--data", str(self.folder)]
        command += ["--instance", self._instance_id, "--token-file", str(self.folder / "bootstrap.token")]
        command += self._options
        with (self.folder / "agent.log").open("ab") as output:
            return subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def busy(self) -> bool:
        """Whether a job holds a place on this machine."""
        instance = self._instance()
        return instance is not None and bool(instance.claims)

    def abort_runs(self, project: Project) -> None:
        store, plane = self._plane.store, self._plane
        instance = self._instance()
        owner = nouns.find(store, User, keys.user(project.owner_id))
        for run_id in {claim.run_id for claim in instance.claims} if instance else ():
            run = nouns.find(store, Run, keys.run(run_id))
            if run is not None and owner is not None:
                runs.stop(plane, owner, project, [run.name], abort=True)

    def stop(self) -> None:
        """End the agent. Its process tasks continue: their supervisors own them until the next agent adopts them."""
        self._stopping.set()
        pid = self.pid()
        if pid:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                log.info("the local agent had already exited")

    def pid(self) -> int | None:
        """The process that holds the lock, as written in it; None if there is none."""
        path = self.folder / LOCK
        if not path.exists():
            return None
        with path.open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return None
            except BlockingIOError:
                text = lock.read().strip()
        return int(text) if text.isdigit() else None


class LocalAgents:
    """All agents of this machine: one for each of its hosts."""

    def __init__(self, data: Path, agents: Sequence[LocalAgent]) -> None:
        self._data, self._agents = data, agents

    def start(self) -> None:
        tidy(self._data, [agent.folder for agent in self._agents])
        for agent in self._agents:
            agent.start()

    def stop_jobs(self, project: Project, patience: float) -> None:
        """Abort the runs that have a job here, as a user would, and wait until the agents have ended them."""
        for agent in self._agents:
            agent.abort_runs(project)
        end = time.monotonic() + patience
        while (busy := any(agent.busy() for agent in self._agents)) and time.monotonic() < end:
            time.sleep(0.05)
        if busy:
            log.warning("jobs of this machine didn't end within %g s; they and their agent keep running", patience)

    def stop(self) -> None:
        """End the agents without jobs. The others keep running: jobs need no server."""
        for agent in self._agents:
            if not agent.busy():
                agent.stop()


def resources_here(data: Path) -> Resources:
    """This machine's resources, as its agent will report them."""
    from chalicelib.agent.program.inventory import Inventory

    return resources_of(HostFacts.model_validate(Inventory(str(data)).facts({})))


def isolation_here(settings: ServerSettings) -> str:
    """The line that says how this machine separates jobs, before any of them runs."""
    from chalicelib.agent.runtimes.docker_client import DockerClient
    from chalicelib.agent.runtimes.users import Users

    away = ""
    if settings.agent_runtime != "process":
        away = DockerClient(str(settings.docker_socket)).ping()
        if not away:
            return "Jobs on this machine run in containers"
        if settings.agent_runtime == "docker":
            return f"Jobs can't run on this machine: {away}"
    because = f" ({away})" if away else ""
    if Users(settings.agent_users).isolation == "user":
        return f"Jobs on this machine run as plain processes, each as a user of its own{because}"
    start = f"Jobs on this machine run as plain processes of the server's own user, without isolation{because}"
    if settings.trust_jobs:
        return f"{start}, whoever submits them: --trust-jobs"
    return (
        f"{start}; only those of admins.\n  For other members' jobs, install Docker, run the server as root, or "
        "start it with --trust-jobs if you trust them all"
    )


def _write_private(path: Path, text: str) -> None:
    """Over what is there: if the disk is full, a file that was emptied first may not get its room back."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.truncate()

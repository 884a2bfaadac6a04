"""The tests' own Docker engine: Debian's package, its own network namespace, images built here, no registry.

The engine's packages are installed if they are missing and we are root. Everything lives in one folder under the
system's temporary folder and ends with the session. If no engine is available, `start` raises NotHere with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from chalicelib.agent.runtimes.docker_client import DockerClient, DockerError
from tests.harness.debian import BUSYBOX, NotHere, install, run
from tests.harness.images import Image, busybox_image, python_image

PACKAGES = ("docker.io", "iptables", "busybox-static", "tini")
READY_SECONDS = 120.0


@dataclass
class DockerEngine:
    socket: str
    folder: Path
    program: str
    daemon: subprocess.Popen[bytes]

    def kill_and_restart(self) -> None:
        """As if the engine had crashed; its containers keep running, because it is configured so."""
        self.daemon.kill()
        self.daemon.wait()
        # If nobody reaps orphans (a container's PID 1), the new one would take the dead containerd for a living one.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)
        self.daemon = daemon(self.program, self.folder)
        ready(self)

    @property
    def api(self) -> DockerClient:
        return DockerClient(self.socket)


def dockerd() -> str:
    """The daemon's program, installed if needed; one process at a time."""
    if os.getuid() != 0:
        raise NotHere("an engine needs root")
    found = shutil.which("dockerd") or shutil.which("dockerd", path="/usr/sbin:/sbin")
    if found and BUSYBOX.exists():
        return found
    install(*PACKAGES)
    return dockerd()


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


RUNC = r"""#!/bin/sh
# Where root may not raise limits (a locked-down virtual machine), a container asks for less and runs all the same.
# The engine writes `config.json` in one line. A Python would take longer to start than all the rest.
case " $* " in *" create "*"--bundle "*)
words="$*" bundle=${{words#*--bundle }}
sed -E -i {edits} "${{bundle%% *}}/config.json" || exit;; esac
exec {runc} "$@"
"""
TOO_HIGH = r'\{"type":"RLIMIT_[A-Z]+","hard":([3-9][0-9]{4}|2[1-9][0-9]{3}|[0-9]{6,}),"soft":[0-9]+\}'  # above 20,000


def runc_wrapper(withheld: Sequence[str] = ("CAP_SYS_RESOURCE",)) -> str:
    """The program of an engine's default runtime; containers get no capability of those `withheld`."""
    runc = shutil.which("runc", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not runc:
        raise NotHere("there is no runc")
    items = [*(f'"{name}"' for name in withheld), TOO_HIGH]
    edits = [f"s/{each}//g" for item in items for each in (f",{item}", f"{item},", item)]
    edits += ['s/,"oomScoreAdj":-[0-9]+//g']
    return RUNC.format(runc=runc, edits=shlex.join(f"-e{edit}" for edit in edits))


@contextlib.contextmanager
def start(disk_mib: int = 0) -> Iterator[DockerEngine]:
    """An engine with both images; NotHere if this machine can't run one. `disk_mib`: one without images, whose disk is
    no larger than that."""
    program = dockerd()
    folder = Path(tempfile.mkdtemp(prefix="dk-"))
    namespace = folder.name
    engine: DockerEngine | None = None
    try:
        run("ip", "netns", "add", namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        _configure(folder)
        if disk_mib:
            (folder / "data").mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size={disk_mib}m", "tmpfs", f"{folder}/data")
        engine = DockerEngine(str(folder / "d.sock"), folder, program, daemon(program, folder))
        ready(engine)
        for image in () if disk_mib else (busybox_image(), python_image()):
            bring(engine, image)
        yield engine
    finally:
        _end(folder, engine.daemon if engine else None)
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path) -> None:
    write_program(folder / "runc", runc_wrapper())
    (folder / "bin").mkdir()
    # With this the engine accepts requests for GPUs.
    write_program(folder / "bin/nvidia-container-runtime-hook", "#!/bin/sh\n")
    config = {"runtimes": {"modest": {"path": str(folder / "runc")}}, "default-runtime": "modest", "live-restore": True}
    (folder / "daemon.json").write_text(json.dumps(config))


def daemon(program: str, folder: Path) -> subprocess.Popen[bytes]:
    # Not `ip netns exec`: it remounts /sys, without the cgroups.
    argv = ["nsenter", f"--net=/run/netns/{folder.name}", program, "--data-root", f"{folder}/data"]
    argv += ["--exec-root", f"{folder}/exec", "-H", f"unix://{folder}/d.sock", "-p", f"{folder}/d.pid"]
    path = f"{folder}/bin:" + os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*argv, "--config-file", f"{folder}/daemon.json"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=dict(os.environ, PATH=path, GOGC="400"),  # it starts itself anew several times for each container
        )


def ready(engine: DockerEngine) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while problem := engine.api.ping():
        if engine.daemon.poll() is not None or time.monotonic() > deadline:
            last_lines = (engine.folder / "log").read_text(errors="replace").strip().splitlines()[-3:]
            raise NotHere(f"dockerd doesn't start ({problem}): {' | '.join(last_lines)}")
        time.sleep(0.05)


def _end(folder: Path, daemon: subprocess.Popen[bytes] | None) -> None:
    """Containers first (they outlive their engine), then the engine, its containerd, and what they mounted."""
    client = DockerClient(str(folder / "d.sock"))
    if daemon is not None and not client.ping():
        for found in client.call("GET", "/containers/json", {"all": 1}) or []:
            with contextlib.suppress(DockerError):
                client.remove(found["Id"])
    if daemon is not None and daemon.poll() is None:
        daemon.terminate()
        try:
            daemon.wait(120)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    for pid in _mentioning(str(folder)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((place for place in mounts if place.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "-l", place], capture_output=True)


def _mentioning(text: str) -> list[int]:
    """Processes whose program or arguments are in the engine's own folder, so certainly ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if text in (entry / "cmdline").read_bytes().decode(errors="replace"):
                    found.append(int(entry.name))
    return found


def bring(engine: DockerEngine, image: Image) -> None:
    """The image, unless the engine has it."""
    if engine.api.image(image.name):
        return
    repo, _, tag = image.name.rpartition(":")
    query = urlencode([("fromSrc", "-"), ("repo", repo), ("tag", tag), *(("changes", line) for line in image.changes)])
    with image.archive.open("rb") as body:
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(image.archive.stat().st_size)}
        engine.api.call("POST", f"/images/create?{query}", body=body, headers=headers, timeout=120.0)


def push(engine: DockerEngine, image: Image) -> None:
    """To the registry that it is named after, in the engine's network."""
    repo, _, tag = image.name.rpartition(":")
    for line in engine.api.lines(
        "POST", f"/images/{repo}/push", {"tag": tag}, {"X-Registry-Auth": "e30="}, lambda: None
    ):
        assert "error" not in line, line


@contextlib.contextmanager
def or_skipped(disk_mib: int = 0) -> Iterator[DockerEngine]:
    """An engine for tests, which skip with the reason if there is none."""
    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(start(disk_mib))
        except NotHere as problem:
            pytest.skip(f"no Docker engine: {problem}")
        yield engine

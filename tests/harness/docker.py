"""The tests' own Docker engine: Debian's package, its own network namespace, images built here, no registry.

The engine's packages are installed if they are missing and we are root. Everything lives in one folder under the
system's temporary folder and ends with the session. If no engine is available, `start` raises NotHere with the reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from chalicelib.agent.docker_client import DockerClient, DockerError
from tests.harness.debian import NotHere, install, run

PACKAGES = ("docker.io", "iptables", "busybox-static", "tini")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/tmp")) / "dstack-test-engines"
BUSYBOX, PYTHON = "test/busybox:1", "test/python:1"
APPLETS = (
    "sh",
    "cat",
    "sleep",
    "env",
    "ls",
    "ps",
    "echo",
    "pwd",
    "id",
    "head",
    "dd",
    "seq",
    "stty",
    "kill",
    "wc",
    "tr",
    "setsid",
)
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
    if found and Path("/bin/busybox").exists():
        return found
    install(*PACKAGES)
    return dockerd()


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


RUNC = """#!{python} -S
# Where root may not raise limits (a locked-down virtual machine), a container asks for less and runs all the same.
import json, os, sys
argv = sys.argv[1:]
if "create" in argv and "--bundle" in argv:
    path = os.path.join(argv[argv.index("--bundle") + 1], "config.json")
    with open(path) as file:
        config = json.load(file)
    process = config["process"]
    for names in (process.get("capabilities") or {{}}).values():
        if "CAP_SYS_RESOURCE" in names:
            names.remove("CAP_SYS_RESOURCE")
    process["rlimits"] = [limit for limit in process.get("rlimits") or [] if limit["hard"] <= 20000]
    if process.get("oomScoreAdj", 0) < 0:
        del process["oomScoreAdj"]
    with open(path, "w") as file:
        json.dump(config, file)
os.execv("{runc}", ["runc", *argv])
"""


@contextlib.contextmanager
def start() -> Iterator[DockerEngine]:
    """An engine with both images; NotHere if this machine can't run one."""
    program = dockerd()
    folder = Path(tempfile.mkdtemp(prefix="dk-"))
    namespace = folder.name
    engine: DockerEngine | None = None
    try:
        run("ip", "netns", "add", namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        _configure(folder)
        engine = DockerEngine(str(folder / "d.sock"), folder, program, daemon(program, folder))
        ready(engine)
        _import(engine, BUSYBOX, _busybox(folder), {"PATH": "/bin"}, "/bin/sh")
        _import(engine, PYTHON, _python(), {"PATH": "/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": "/usr"}, "/bin/bash")
        yield engine
    finally:
        _end(folder, engine.daemon if engine else None)
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path) -> None:
    runc = shutil.which("runc", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if not runc:
        raise NotHere("there is no runc")
    write_program(folder / "runc", RUNC.format(python=sys.executable, runc=runc))
    config = {"runtimes": {"modest": {"path": str(folder / "runc")}}, "default-runtime": "modest", "live-restore": True}
    (folder / "daemon.json").write_text(json.dumps(config))


def daemon(program: str, folder: Path) -> subprocess.Popen[bytes]:
    # Not `ip netns exec`: it remounts /sys, without the cgroups.
    argv = ["nsenter", f"--net=/run/netns/{folder.name}", program, "--data-root", f"{folder}/data"]
    argv += ["--exec-root", f"{folder}/exec", "-H", f"unix://{folder}/d.sock", "-p", f"{folder}/d.pid"]
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [*argv, "--config-file", f"{folder}/daemon.json"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=dict(os.environ, PATH=path),
        )


def ready(engine: DockerEngine) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while problem := engine.api.ping():
        if engine.daemon.poll() is not None or time.monotonic() > deadline:
            said = (engine.folder / "log").read_text(errors="replace").strip().splitlines()[-3:]
            raise NotHere(f"dockerd doesn't start ({problem}): {' | '.join(said)}")
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
            daemon.wait(60)
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


def _import(engine: DockerEngine, name: str, archive: Path, env: dict[str, str], shell: str) -> None:
    repo, _, tag = name.partition(":")
    changes = [("changes", f"ENV {key}={value}") for key, value in env.items()] + [("changes", f'CMD ["{shell}"]')]
    query = urlencode([("fromSrc", "-"), ("repo", repo), ("tag", tag), *changes])
    with archive.open("rb") as body:
        headers = {"Content-Type": "application/x-tar", "Content-Length": str(archive.stat().st_size)}
        engine.api.call("POST", f"/images/create?{query}", body=body, headers=headers, timeout=120.0)


def _busybox(folder: Path) -> Path:
    root = folder / "busybox"
    for name in ("bin", "etc", "tmp", "proc", "dev", "root", "home/somebody"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nsomebody:x:1234:1234::/home/somebody:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nsomebody:x:1234:\n")
    return _tar(root, folder / "busybox.tar")


def _tar(root: Path, archive: Path) -> Path:
    run("tar", "-C", str(root), "-cf", str(archive), ".")
    return archive


def _python() -> Path:
    """Python and bash from this machine's own files: a program, its libraries, the standard library. Built once."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    archive = CACHE / f"python-{version}.{sys.version_info.micro}-1.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "python.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as work:
                root = Path(work) / "root"
                _copy_python(root, version)
                _tar(root, Path(work) / "python.tar").rename(archive)
    return archive


def _copy_python(root: Path, version: str) -> None:
    base = Path(sys.base_prefix)
    for name in ("bin", "etc", "tmp", "proc", "dev", "root", "usr/bin", "usr/local"):
        (root / name).mkdir(parents=True)
    home = root / base.relative_to("/")
    shutil.copytree(
        base / f"lib/python{version}",
        home / f"lib/python{version}",
        ignore=shutil.ignore_patterns(
            "test", "site-packages", "__pycache__", "idlelib", "ensurepip", "tkinter", "config-*"
        ),
    )
    real = (base / f"bin/python{version}").resolve()
    (home / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(real, home / f"bin/python{version}")
    tools = [
        Path(shutil.which(name) or f"/bin/{name}").resolve() for name in ("bash", "env", "cat", "ls", "sleep", "id")
    ]
    for tool in tools:
        shutil.copy(tool, root / "bin" / tool.name)
    for name in ("python3", "python"):
        (root / "usr/bin" / name).symlink_to(f"{base}/bin/python{version}")
    (root / "bin/sh").symlink_to("bash")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nsomebody:x:1234:1234::/tmp:/bin/bash\n")
    extensions = list((base / f"lib/python{version}/lib-dynload").glob("*.so"))
    for library in _libraries([real, *tools, *extensions]):
        place = root / library.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copy(library.resolve(), place)


def _libraries(programs: list[Path]) -> set[Path]:
    found = set()
    for program in programs:
        done = subprocess.run(["ldd", str(program)], capture_output=True, text=True)
        for word in done.stdout.split():
            if word.startswith("/"):
                found.add(Path(word))
    return found


@contextlib.contextmanager
def or_skipped() -> Iterator[DockerEngine]:
    """An engine for tests, which skip with the reason if there is none."""
    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(start())
        except NotHere as problem:
            pytest.skip(f"no Docker engine: {problem}")
        yield engine

"""One host: systemd as PID 1 in a network namespace of its own, with sshd, an engine, a journal and a user.

It is as far from this machine as a container can be, and it shares its kernel: clock, memory and number of processors
are this machine's. It is switched on and off as a server is: `stop` in good order, `kill` as if the power failed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chalicelib.agent.runtimes.docker_client import DockerClient
from tests.e2e.hosts import claim, keys
from tests.e2e.hosts.network import Namespace, Network
from tests.e2e.hosts.rootfs import Disk
from tests.e2e.hosts.spec import PASSWORD_HASH, HostSpec
from tests.harness.images import Image
from tests.harness.server import PATIENCE, until

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
ENTER_GROUPS = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'
SSHD_ALONE = "mkdir -p /run/sshd; exec /usr/sbin/sshd -D -e"
PORT = 22
INSIDE = ("-m", "-u", "-i", "-n", "-p", "-r", "-w", "--")

Done = subprocess.CompletedProcess[str]


class Host:
    def __init__(self, spec: HostSpec, folder: Path, network: Network, base: Path) -> None:
        self.spec, self.name, self._network = spec, spec.name, network
        self.namespace: Namespace = network.workers.get(spec.name, network.head)
        self.disk = Disk(folder, base)
        self.addresses = network.addresses(spec.name)
        self.ssh_prefix: tuple[str, ...] = ()  # the site's: how openssh is run to reach it
        self._process: subprocess.Popen[bytes] | None = None
        self._news: socket.socket | None = None
        self.leader = 0  # its PID 1, as this machine numbers it

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def home(self) -> str:
        return "/root" if self.spec.user == "root" else f"/home/{self.spec.user}"

    # Power ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Switch it on; `ready` waits for it."""
        self._news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = self.disk.folder / "news"
        path.unlink(missing_ok=True)
        self._news.bind(str(path))
        groups = claim.make_groups(self.namespace.name, self.spec.memory_mib)
        command = ["sh", "-c", ENTER_GROUPS, "sh", *map(str, groups), "--", *self._nspawn()]
        with (self.disk.folder / "console").open("ab") as console:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                # "network": an engine switches forwarding on, in the host's own network.
                env={**os.environ, "NOTIFY_SOCKET": str(path), "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"},
            )

    def _nspawn(self) -> list[str]:
        name = self.namespace.name
        options = f"""--quiet --directory={self.disk.root} --machine={name} --hostname={self.spec.hostname or self.name}
            --network-namespace-path={self.namespace.path} --register=no --keep-unit --link-journal=no --resolv-conf=off
            --timezone=off --capability=all --drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE
            --bind={self.disk.engine}:/var/lib/docker""".split()
        options += ["--system-call-filter=keyctl add_key bpf"]
        options += [f"--personality={stub.personality}" for stub in self.spec.stubs if stub.personality]
        if self.spec.boots:
            return ["systemd-nspawn", *options, "--kill-signal=SIGRTMIN+3", "--notify-ready=yes", "--boot"]
        return ["systemd-nspawn", *options, "--as-pid2", "/bin/sh", "-c", SSHD_ALONE]

    def ready(self) -> None:
        """Once it has booted: sshd and the engine answer."""
        end = time.monotonic() + PATIENCE
        notices = ""
        while "READY=1" not in notices.split("\n"):
            notices += self._next_notice(end)
            for line in notices.splitlines():
                if line.startswith("X_NSPAWN_LEADER_PID="):
                    self.leader = int(line.partition("=")[2])
        self._deaf()
        for stub in self.spec.stubs:
            for path, (major, minor) in stub.nodes.items():
                node = Path(f"/proc/{self.leader}/root{path}")
                node.parent.mkdir(parents=True, exist_ok=True)
                os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(major, minor))
                node.chmod(0o666)
        until(f"sshd of {self.name}", self._listens, every=0.02)
        if (
            self.spec.boots
            and self.spec.docker
            and self.run("systemctl", "is-active", "docker", check=False).returncode
        ):
            notices = self.run("journalctl", "--unit", "docker", "--lines", "20", "--output", "cat").stdout
            raise AssertionError(f"the engine of {self.name} doesn't start:\n{notices}")

    def _next_notice(self, end: float) -> str:
        assert self._process is not None and self._news is not None
        self._news.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            return self._news.recv(4096).decode() + "\n"
        if self._process.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"{self.name} doesn't boot:\n{self.console[-2000:]}")
        return ""

    def _deaf(self) -> None:
        """Nobody reads its news any more, and whoever sends some must not wait for a reader."""
        if self._news is not None:
            self._news.close()

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), self.namespace.connect((self.address, PORT), 1.0):
            return True
        return False

    @property
    def console(self) -> str:
        return (self.disk.folder / "console").read_text(errors="replace")

    def boot(self) -> None:
        self.start()
        self.ready()

    def stop(self) -> None:
        """As `poweroff` does."""
        assert self._process is not None
        self._process.terminate()
        self.wait_off()

    def kill(self) -> None:
        """As if the power failed: nothing is asked, nothing is saved that wasn't."""
        os.kill(self.leader, signal.SIGKILL)
        self.wait_off()

    def wait_off(self, seconds: float = PATIENCE) -> None:
        """Until it is off, whoever switched it off: a reboot ordered inside ends here, too. Then `boot`."""
        assert self._process is not None
        self._process.wait(seconds)
        self.leader = 0

    def reboot(self) -> None:
        self.stop()
        self.boot()

    @property
    def on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # Its wires -----------------------------------------------------------------------------------------------------

    def unplug(self, interface: str = "") -> None:
        """Whoever talks to it, or to that interface, hears nothing more; no connection is closed."""
        self._network.plug(self.name, "down", interface)

    def plug(self, interface: str = "") -> None:
        self._network.plug(self.name, "up", interface)

    # Inside --------------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """Its files as it sees them, with what it mounted, for reading while it is on. Links lead to this machine's."""
        return Path(f"/proc/{self.leader}/root")

    def run(self, *command: str, check: bool = True, **options: Any) -> Done:
        """A command inside, as root, past SSH."""
        personality = [argument for stub in self.spec.stubs if stub.personality for argument in ("setarch", "linux32")]
        argv = ["nsenter", f"--target={self.leader}", *INSIDE, *personality, *command]
        options = {"capture_output": True, "text": True, "timeout": PATIENCE, "env": ENVIRONMENT, **options}
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return _checked(self.name, command, subprocess.run(argv, **options), check)

    def ssh(self, *command: str, check: bool = True, options: Sequence[str] = (), **more: Any) -> Done:
        """A command inside as its user, by the openssh client at control, through the head. `options` are ssh's."""
        more = {"capture_output": True, "text": True, "timeout": PATIENCE, **more}
        if "input" not in more:
            more.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run([*self.ssh_prefix, *options, self.name, *command], **more)
        return _checked(f"ssh {self.name}", command, done, check)

    def docker(self, *command: str, check: bool = True, **options: Any) -> Done:
        return self.run("docker", *command, check=check, **options)

    def systemctl(self, *command: str, check: bool = True) -> str:
        return self.run("systemctl", *command, check=check).stdout.strip()

    @property
    def engine(self) -> DockerClient:
        """Its engine's API, from here."""
        return DockerClient(str(self.root / "run/docker.sock"))

    def import_image(self, image: Image) -> None:
        changes = [argument for line in image.changes for argument in ("--change", line)]
        with image.archive.open("rb") as archive:
            self.docker("import", *changes, "-", image.name, stdin=archive)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Inside, where links lead to the host's files and not to this machine's."""
        self.run("sh", "-c", 'mkdir -p "${1%/*}" && cat > "$1" && chmod "$2" "$1"', "sh", path, f"{mode:o}", input=text)

    def new_host_key(self, kind: str = "ed25519") -> None:
        """As after an installation anew: who knew the host doesn't recognise it."""
        self.run(
            "sh", "-c", f"rm -f /etc/ssh/ssh_host_*; ssh-keygen -q -t {kind} -N '' -f /etc/ssh/ssh_host_{kind}_key"
        )
        self.run(*("systemctl restart ssh" if self.spec.boots else "pkill -HUP -o sshd").split())

    def authorize(self, key: keys.Key) -> None:
        self.run("sh", "-c", f"cat >> {self.home}/.ssh/authorized_keys", input=key.public)

    def memory_mib(self) -> int:
        """What its processes and its disk take of this machine's memory."""
        return claim.memory_of(self.namespace.name) >> 20


def _checked(where: str, command: Sequence[str], done: Done, check: bool) -> Done:
    if check and done.returncode:
        raise AssertionError(f"{where}: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def furnish(disk: Disk, spec: HostSpec, authorized: str) -> None:
    """What distinguishes one host from the next, on its disk."""
    name, user = spec.hostname or spec.name, spec.user
    disk.write("etc/hostname", f"{name}\n")
    disk.write("etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    keys.make(disk.root / f"etc/ssh/ssh_host_{spec.host_key}_key", spec.host_key)
    lines = [] if spec.forwarding else ["AllowTcpForwarding no", "AllowStreamLocalForwarding no"]
    disk.write("etc/ssh/sshd_config.d/host.conf", "".join(f"{line}\n" for line in lines))
    if not spec.docker:
        for unit in ("sockets.target.wants/docker.socket", *(f"multi-user.target.wants/{u}.service" for u in ENGINE)):
            disk.remove(f"etc/systemd/system/{unit}")
    home = "root"
    if user != "root":
        home = f"home/{user}"
        _add_user(disk, spec)
    disk.write(f"{home}/.ssh/authorized_keys", authorized, 0o600)
    (disk.root / home / ".ssh").chmod(0o700)
    if user != "root":
        subprocess.run(["chown", "-R", "1000:1000", str(disk.root / home)], check=True)
    for stub in spec.stubs:
        _apply(disk, stub)


ENGINE = ("docker", "containerd")


def _add_user(disk: Disk, spec: HostSpec) -> None:
    user, etc = spec.user, disk.root / "etc"
    groups = {*spec.groups, *(() if spec.sudo == "none" else ("sudo",))}
    secret = "*" if spec.sudo == "free" else PASSWORD_HASH
    _append(etc / "passwd", f"{user}:x:1000:1000::/home/{user}:/bin/bash\n")
    _append(etc / "shadow", f"{user}:{secret}:19000:0:99999:7:::\n")
    lines = []
    for line in (etc / "group").read_text().splitlines():
        fields = line.split(":")
        if fields[0] in groups:
            fields[3] = ",".join(filter(None, (fields[3], user)))
        lines.append(":".join(fields) + "\n")
    (etc / "group").write_text("".join([*lines, f"{user}:x:1000:\n"]))
    if spec.sudo == "free":
        disk.write(f"etc/sudoers.d/{user}", f"{user} ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    shutil.copytree(etc / "skel", disk.root / f"home/{user}")


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def _apply(disk: Disk, stub: Any) -> None:
    for path in stub.gone:
        disk.remove(path)
    disk.apply(stub.files)
    for path, (old, new) in stub.edits.items():
        place = disk.place(path)
        assert len(old) == len(new), f"{new!r} must be as long as {old!r}"
        content = place.read_bytes()
        assert old in content, f"{path} has no {old!r}"
        place.write_bytes(content.replace(old, new))

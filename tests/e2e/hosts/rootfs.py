"""A host's disk: this machine's programs, and nothing else from it.

`/` itself is the lower layer of an overlay, so a disk costs neither a download nor a copy. Above it lies one layer that
all hosts share. It conceals everything but a list of places that a Debian server has and that hold no data: the
working trees, homes, services, credentials and settings of this machine aren't there, whatever this machine is. The
uppermost layer is the host's own, in memory: what changed on that host, and only that.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.harness.debian import run
from tests.harness.docker import runc_wrapper

KEPT = tuple(
    place
    for line in Path(__file__).with_name("kept.txt").read_text().splitlines()
    if not line.startswith("#")
    for place in line.split()
)
# Below a kept place, and concealed all the same.
CONCEALED = ("usr/local", "usr/sbin/policy-rc.d")
EMPTY = {
    **dict.fromkeys(("boot", "dev", "home", "media", "mnt", "opt", "proc", "run", "srv", "sys"), 0o755),
    **dict.fromkeys(("usr/local", "usr/local/bin", "usr/local/sbin", "usr/local/lib", "usr/local/share"), 0o755),
    **dict.fromkeys(("var/cache", "var/log", "var/log/journal", "var/spool", "var/mail", "var/lib/systemd"), 0o755),
    **dict.fromkeys(("etc/systemd/system", "etc/systemd/journald.conf.d"), 0o755),
    **dict.fromkeys(("etc/ssh/sshd_config.d", "etc/sudoers.d", "etc/docker", "etc/containerd"), 0o755),
    "root": 0o700,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
}
SERVICES = ("ssh", "docker", "containerd")
# They keep time, tidy up, draw a prompt or make what the image has already, none of which a host of minutes needs.
MASKED = (
    "systemd-remount-fs.service",
    "systemd-sysusers.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-update-utmp.service",
    "console-getty.service",
    "getty.target",
    "systemd-timesyncd.service",
    "systemd-networkd-wait-online.service",
    "systemd-logind-varlink.socket",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "logrotate.timer",
    "man-db.timer",
    "systemd-tmpfiles-clean.timer",
)
# An idle containerd looks for garbage every 150 ms. That is a hundredth of a processor, and all hosts share this
# machine's. It spaces its looks by the share of its time for which they may stop it.
ENGINE = """version = 2
[plugins."io.containerd.gc.v1.scheduler"]
pause_threshold = 0.001
"""
# nspawn mounts groups of version 1 read-only, and the engine needs them. It starts itself anew several times for each
# container, and then collects no garbage.
CGROUPS = """[Service]
Environment=GOGC=400
ExecStartPre=/bin/sh -c "mount -o remount,rw /sys/fs/cgroup; \\
  for d in /sys/fs/cgroup/*/; do mount -o remount,rw,bind $$d; done; true"
"""
# systemd runs all of these at each start and reload. They make units of disks, consoles and scripts that hosts lack.
GENERATORS = Path("/usr/lib/systemd/system-generators")
# A login's own systemd takes as much as all the rest of the login.
USER_MANAGER = """[Service]
Type=oneshot
RemainAfterExit=yes
PAMName=
ExecStart=
ExecStart=/bin/true
"""
SUDOERS = """Defaults env_reset
Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) ALL
%sudo ALL=(ALL:ALL) ALL
@includedir /etc/sudoers.d
"""
SSHD = """Include /etc/ssh/sshd_config.d/*.conf
UsePAM yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp /usr/lib/openssh/sftp-server
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org
"""  # the last line saves clients 70 ms of CPU each time
# Where the machine lacks the right to raise limits, and where a host lacks that to set the machine's clock or kernel.
WITHHELD = ("CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_MODULE")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=0o755)
    path.unlink(missing_ok=True)  # the device that conceals what was here, or a link to elsewhere
    path.write_text(text)
    path.chmod(mode)


def conceal(layer: Path, lower: Path = Path("/")) -> None:
    """Make whatever isn't kept invisible: a device 0/0 in a layer of an overlay hides the name below it."""

    def visit(folder: str) -> None:
        for entry in sorted((lower / folder).iterdir()):
            path = str(entry.relative_to(lower))
            kept = any(f"{path}/".startswith(f"{place}/") for place in KEPT)
            if kept and not any(f"{place}/".startswith(f"{path}/") for place in CONCEALED):
                continue
            above = any(place.startswith(f"{path}/") for place in (*KEPT, *CONCEALED))
            if above and stat.S_ISDIR(entry.lstat().st_mode) and path not in CONCEALED:
                (layer / path).mkdir()
                shutil.copystat(entry, layer / path)
                visit(path)
            else:
                os.mknod(layer / path, stat.S_IFCHR, 0)

    visit("")


def furnish(layer: Path) -> None:
    """What every host has: empty folders, accounts, services, and a log that stays small."""
    for path, mode in EMPTY.items():
        _empty(layer / path, mode)
    _link(layer / "var/run", "/run")
    _link(layer / "var/lock", "/run/lock")
    _link(layer / "etc/localtime", "/usr/share/zoneinfo/Etc/UTC")
    _accounts(layer)
    units = layer / "etc/systemd/system"
    for name in MASKED:
        (units / name).symlink_to("/dev/null")
    (units / "multi-user.target.wants").mkdir()
    (units / "sockets.target.wants").mkdir()
    for name in SERVICES:
        (units / f"multi-user.target.wants/{name}.service").symlink_to(f"/lib/systemd/system/{name}.service")
    (units / "sshd.service").symlink_to("/lib/systemd/system/ssh.service")
    (units / "sockets.target.wants/docker.socket").symlink_to("/lib/systemd/system/docker.socket")
    (units.parent / "system-generators").mkdir()
    for generator in GENERATORS.iterdir():
        (units.parent / "system-generators" / generator.name).symlink_to("/dev/null")
    write(units / "user@.service.d/host.conf", USER_MANAGER)
    write(units / "docker.service.d/host.conf", CGROUPS)
    write(layer / "etc/systemd/journald.conf.d/host.conf", "[Journal]\nStorage=persistent\nSystemMaxUse=16M\n")
    write(layer / "usr/local/libexec/runc", runc_wrapper(WITHHELD), 0o755)
    write(
        layer / "etc/docker/daemon.json",
        '{"runtimes": {"modest": {"path": "/usr/local/libexec/runc"}}, "default-runtime": "modest"}\n',
    )
    write(layer / "etc/containerd/config.toml", ENGINE)
    write(layer / "etc/sudoers", SUDOERS, 0o440)
    write(layer / "etc/ssh/sshd_config", SSHD)
    for name in ("fstab", "resolv.conf", "machine-id", "environment"):
        write(layer / "etc" / name, "")
    write(layer / "etc/default/locale", "")


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _empty(folder: Path, mode: int) -> None:
    """A folder that hides the one below it, if there is one."""
    if folder.exists() or folder.is_symlink():
        if folder.is_dir():
            return
        folder.unlink()  # the device that conceals
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    folder.chmod(mode)
    os.setxattr(folder, "trusted.overlay.opaque", b"y")


def _accounts(layer: Path) -> None:
    """The system's own, with no password, and without the people of this machine."""
    lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    system = [fields for fields in lines if int(fields[2]) < 1000 or fields[0] == "nobody"]
    for fields in system:
        if fields[0] == "root":
            fields[5:] = ["/root", "/bin/bash"]
    people = {fields[0] for fields in lines} - {fields[0] for fields in system}
    groups = [line.split(":") for line in Path("/etc/group").read_text().splitlines()]
    system_groups = [fields for fields in groups if int(fields[2]) < 1000 or fields[0] == "nogroup"]
    for fields in system_groups:
        fields[3] = ",".join(name for name in fields[3].split(",") if name and name not in people)
    etc = layer / "etc"
    write(etc / "passwd", "".join(":".join(fields) + "\n" for fields in system))
    write(etc / "group", "".join(":".join(fields) + "\n" for fields in system_groups))
    write(etc / "shadow", "".join(f"{fields[0]}:*:19000:0:99999:7:::\n" for fields in system), 0o640)
    write(etc / "gshadow", "".join(f"{fields[0]}:*::\n" for fields in system_groups), 0o640)


@dataclass(frozen=True)
class Disk:
    """A host's layers. They stay until the site ends, so a host that boots again finds its files."""

    folder: Path
    base: Path

    @property
    def root(self) -> Path:
        """The whole, while nobody boots from it or from outside. What a running host mounts below it isn't seen."""
        return self.folder / "root"

    @property
    def own(self) -> Path:
        """What this host has that others don't: its upper layer."""
        return self.folder / "upper"

    @property
    def image(self) -> Path:
        return self.base.with_name("image")

    @property
    def engine(self) -> Path:
        """Its /var/lib/docker. Layers of images can't lie on an overlay."""
        return self.folder / "docker"

    def mount(self, size_mib: int = 0, engine_mib: int = 0) -> None:
        """Sizes are what the host finds on its disks, beyond the image's; 0 is no limit."""
        self.folder.mkdir()
        _memory(self.folder, size_mib)
        for folder in (self.root, self.own, self.folder / "work", self.engine):
            folder.mkdir()
        if engine_mib:
            _memory(self.engine, engine_mib)
        layers = f"lowerdir={self.base}:/,upperdir={self.own},workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        self.own.chmod(0o755)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Before the host boots."""
        write(self.place(path), text, mode)

    def remove(self, path: str) -> None:
        place = self.place(path)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def place(self, path: str) -> Path:
        """Where a path of the host's is from here. Never by a link that leads out of the disk."""
        place = self.root / path.lstrip("/")
        assert place.parent.resolve().is_relative_to(self.root), f"{path} leads to this machine's own files"
        return place

    def apply(self, files: Mapping[str, tuple[str, int]]) -> None:
        for path, (text, mode) in files.items():
            self.write(path, text, mode)


def _memory(folder: Path, size_mib: int) -> None:
    options = f"mode=0755,size={size_mib}m" if size_mib else "mode=0755"
    run("mount", "-t", "tmpfs", "-o", options, "host", str(folder))


def base(folder: Path) -> Path:
    """The layer that hosts share, made once a site; beside it is `image`, a disk as it is before any host's own."""
    folder.mkdir()
    conceal(folder)
    furnish(folder)
    image = folder.with_name("image")
    image.mkdir()
    run("mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={folder}:/", str(image))
    return folder

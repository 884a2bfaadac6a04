"""A volume's disk on this machine: found, checked, formatted if it is new, mounted, and unmounted after its last job.

No disk may lose data. So a disk is found by its identity (`devices`). It is formatted only if the server says that it
created the disk and that it has never been mounted, if nothing is on it (`signatures`, and `blkid` if the machine has
that) except what an interrupted formatting left (`marks`), and if the formatting program doesn't object either. And it
counts as unmounted only when the kernel has no user of it left, in any namespace. A crash may follow any step: the
kernel knows what is mounted, and `holds` what the agent may have mounted.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ..kernel import mountinfo, namespaces, process_tree
from . import devices, marks, signatures
from .devices import BlockDevice
from .holds import Holds
from .signatures import Contents, UnusableDisk

WAIT_SECONDS = 60.0  # for the kernel to show a disk; the server starts a job only when its disks are attached
POLL_EVERY = 0.5
PROBE_SECONDS = 60.0
CLOSED = 0  # the mode of a mount point, so that nothing is written to it without its disk
NOTHING_FOUND = 2  # blkid's exit status
USERS_NAMED = 3  # processes that a message about a busy disk names
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MESSAGES = {
    errno.EIO: "the disk is failing (input/output error); restore its data from a backup or a snapshot",
    errno.ENODEV: "this machine's kernel doesn't know that filesystem; use another image, or ext4",
    errno.EBUSY: "something else on this machine uses it",
    errno.EROFS: "it is write-protected; mount it read-only, or attach it for writing",
    errno.EACCES: "it is write-protected; mount it read-only, or attach it for writing",
    errno.ENXIO: "the disk is gone from this machine",
}
CORRUPT = "the filesystem is damaged; detach the volume, run %s on it, and start the job again"
REPAIRS = {"ext4": "`e2fsck -f`", "xfs": "`xfs_repair`", "btrfs": "`btrfs check`"}
UNREPLAYED = {"ext4": "noload", "xfs": "norecovery"}  # options to read a filesystem without replaying its journal

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
Pause = Callable[[float], None]


class TaskDisk:
    """A volume's disk for one task. What must survive a crash is in the task's hold (`holds`)."""

    def __init__(self, entry: Mapping[str, Any], holds: Holds, task: str, root: str = "/") -> None:
        self.volume: str = entry["volume"]
        self.name: str = entry.get("name") or self.volume
        self.read_only = bool(entry.get("read_only"))
        self._may_format = bool(entry.get("format")) and not self.read_only
        self._mark = marks.Mark(str(entry.get("install") or ""), self.volume)
        self._identity: Dict[str, str] = entry.get("device") or {}
        self._holds, self._task, self._root = holds, task, root
        self.point = holds.point(self.volume)
        self.trouble = ""  # a problem that didn't prevent unmounting

    # Mounting -----------------------------------------------------------------------------------------------------

    def mount(self, pause: Pause, report: Callable[[str], None]) -> str:
        """Mount the disk; returns its mount point. Raises UnusableDisk."""
        device = self._await(pause, report)
        with self._holds.locked(self.volume, pause) as lock:
            mounted = mountinfo.at(self.point)
            if mounted and self._is_of(mounted[-1], device):
                self._check_writable(mounted[-1])
            else:
                self._clear_point(mounted)
                self._mount_fresh(device, lock)
            if self._may_format:
                open_to_everybody(self.point)
        return self.point

    def _await(self, pause: Pause, report: Callable[[str], None]) -> BlockDevice:
        for attempt in range(int(WAIT_SECONDS / POLL_EVERY) + 1):
            found = devices.find(self._identity, self._root)
            if found is not None:
                return found
            if attempt == 0:
                last = time.strftime("%H:%M:%S", time.gmtime(time.time() + WAIT_SECONDS))
                report("waiting for the disk of volume %s, until %s UTC at the latest" % (self.name, last))
            pause(POLL_EVERY)
        parts = [item for item in sorted(self._identity.items()) if item[0] in devices.IDENTITIES and item[1]]
        identity = ", ".join("%s %s" % item for item in parts)
        raise UnusableDisk(
            "the machine doesn't show its disk (%s) after %d seconds; check that it is attached to this machine"
            % (identity, WAIT_SECONDS)
        )

    @staticmethod
    def _is_of(mounted: mountinfo.MountEntry, device: BlockDevice) -> bool:
        parts = (device, *device.partitions)
        return any(mounted.number == part.number or mounted.source == part.path for part in parts)

    def _check_writable(self, mounted: mountinfo.MountEntry) -> None:
        if mounted.read_only and not self.read_only:
            raise UnusableDisk(
                "a job on this machine has it mounted read-only; wait until that job ends, or mount it read-only too"
            )

    def _clear_point(self, mounted: List[mountinfo.MountEntry]) -> None:
        """Unmount a disk that was detached from the machine."""
        if mounted and self._holds.is_used_by_other_tasks(self._task, self.volume):
            raise UnusableDisk("its disk was replaced while another job used it; end that job first")
        for _ in mounted:
            self._unmount_or_raise()

    def _unmount_or_raise(self) -> None:
        try:
            namespaces.unmount(self.point)
        except OSError as problem:
            raise UnusableDisk(
                "a disk that is gone is still in use at %s (%s); restart the machine" % (self.point, problem)
            ) from None

    def _mount_fresh(self, device: BlockDevice, lock: int) -> None:
        self._refuse_busy(device)
        if device.read_only and not self.read_only:
            raise UnusableDisk("%s is write-protected; set `read_only`, or attach it for writing" % device.path)
        part, filesystem = self._choose(device)
        self._note(node=part.path)
        if not filesystem:
            format_disk(part, self._mark, lock)
        if self._may_format and not part.read_only and self._marked(device):
            marks.remove(device.path, device.size)
        os.makedirs(self.point, mode=CLOSED, exist_ok=True)
        self._mount_part(part, filesystem or "ext4")

    def _refuse_busy(self, device: BlockDevice) -> None:
        for part in (device, *device.partitions):
            for mounted in mountinfo.mounts():
                if mounted.number == part.number or mounted.source == part.path:
                    raise UnusableDisk("%s is mounted at %s already; unmount it there" % (part.path, mounted.place))
            if busy(part.path):
                raise UnusableDisk("%s is in use on this machine%s" % (part.path, users_text(part.number)))

    def _choose(self, device: BlockDevice) -> Tuple[BlockDevice, str]:
        """The part to mount and its filesystem; an empty filesystem for a disk that is to be formatted."""
        contents = read(device)
        parts = {part.path: read(part) for part in device.partitions}
        if self._may_format and signatures.formattable(contents, parts, self._marked(device)):
            found = probe(device.path)
            if found:
                raise UnusableDisk("%s isn't blank, so it isn't formatted: blkid finds %s" % (device.path, found))
            return device, ""
        choice = signatures.choose(device.path, contents, parts)
        return device.part(choice.part), choice.filesystem

    def _marked(self, device: BlockDevice) -> bool:
        return device.size > marks.TAIL and marks.is_on(device.path, device.size, self._mark)

    def _mount_part(self, part: BlockDevice, filesystem: str) -> None:
        flags = namespaces.MS_NOSUID | namespaces.MS_NODEV | (namespaces.MS_RDONLY if self.read_only else 0)
        try:
            namespaces.mount(part.path, self.point, flags, filesystem)
        except OSError as problem:
            if part.read_only and filesystem in UNREPLAYED:  # perhaps only its journal can't be replayed
                problem = self._mount_unreplayed(part, filesystem, flags) or problem
                if mountinfo.at(self.point):
                    return
            fallback = CORRUPT % REPAIRS[filesystem]
            message = MESSAGES.get(problem.errno or 0, fallback)
            raise UnusableDisk("%s can't be mounted as %s: %s" % (part.path, filesystem, message)) from None

    def _mount_unreplayed(self, part: BlockDevice, filesystem: str, flags: int) -> Optional[OSError]:
        try:
            namespaces.mount(part.path, self.point, flags, filesystem, UNREPLAYED[filesystem])
        except OSError as problem:
            return problem
        return None

    # Unmounting ---------------------------------------------------------------------------------------------------

    def unmount(self) -> str:
        """Unmount the disk, unless another task uses it. Returns the reason if that isn't possible yet."""
        with self._holds.locked(self.volume):
            if not self._holds.is_used_by_other_tasks(self._task, self.volume):
                reason = self._try_unmount()
                if reason:
                    return reason
            hold = self._holds.of(self._task) or {"volumes": {}}
            hold["volumes"].pop(self.volume, None)
            self._holds.write(self._task, hold)
        return ""

    def _try_unmount(self) -> str:
        refused = ""
        if mountinfo.at(self.point):
            self.trouble = flush(self.point) or self.trouble
            try:
                for _ in mountinfo.at(self.point):
                    namespaces.unmount(self.point)
            except OSError as problem:
                refused = str(problem)
        reason = self._users() or refused
        if not reason and os.path.isdir(self.point):
            os.rmdir(self.point)
        return reason

    def _users(self) -> str:
        """The processes that still use the disk, in any namespace, in words; empty if there are none."""
        node, number = self._record().get("node"), self._number()
        return (users_text(number) or "in use") if node and number and busy(node) else ""

    def _number(self) -> str:
        """The number of the mounted part, if the machine still has that disk: another may have its node by now."""
        found = devices.find(self._identity, self._root)
        node = self._record().get("node")
        parts = [part for part in (found, *found.partitions) if part.path == node] if found else []
        return parts[0].number if parts else ""

    # The hold ------------------------------------------------------------------------------------------------------

    def _record(self) -> Dict[str, Any]:
        hold = self._holds.of(self._task) or {}
        return dict((hold.get("volumes") or {}).get(self.volume) or {})

    def _note(self, **fields: Any) -> None:
        hold = self._holds.of(self._task)
        assert hold is not None  # written before any disk is touched
        hold["volumes"][self.volume].update(fields)
        self._holds.write(self._task, hold)


def read(device: BlockDevice) -> Contents:
    try:
        fd = os.open(device.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return signatures.inspect(lambda at, length: os.pread(fd, length, at), device.size)
        finally:
            os.close(fd)
    except OSError as problem:
        message = MESSAGES.get(problem.errno or 0, os.strerror(problem.errno or 0))
        raise UnusableDisk("%s can't be read: %s" % (device.path, message)) from None


def format_disk(device: BlockDevice, mark: marks.Mark, lock: int) -> None:
    """Make an ext4 filesystem. Without `-F`, mkfs checks the disk itself, and without a terminal it gives up if it
    finds something. It inherits the lock, so that a supervisor which follows a killed one waits for it. It writes the
    part that makes the disk a filesystem last, after all others are on the disk."""
    program = shutil.which("mkfs.ext4", path=PATH)
    if program is None:
        raise UnusableDisk("this machine has no mkfs.ext4 to make its filesystem with; install e2fsprogs")
    marks.put(device.path, device.size, mark)
    result = subprocess.run(
        [program, "-q", "-m", "0", device.path, "%dk" % ((device.size - marks.TAIL) // 4096 * 4)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
        check=False,
    )
    if result.returncode:
        output = " / ".join(result.stdout.decode("utf-8", "replace").split("\n")).strip(" /")
        raise UnusableDisk(
            "mkfs.ext4 failed on %s: %s" % (device.path, output[-300:] or "status %d" % result.returncode)
        )


def open_to_everybody(point: str) -> None:
    """Open a fresh filesystem to every user, since the job may run as any; only if it is as `mkfs` left it."""
    found = os.stat(point)
    if (stat.S_IMODE(found.st_mode), found.st_uid) == (0o755, 0) and os.listdir(point) == ["lost+found"]:
        os.chmod(point, 0o777)


def probe(path: str, run: Run = subprocess.run) -> str:
    """What `blkid` finds on a disk, in words; empty for nothing, or if the machine doesn't have that tool."""
    program = shutil.which("blkid", path=PATH)
    if program is None:
        return ""
    try:
        result = run(
            [program, "-p", "-s", "TYPE", "-s", "PTTYPE", "-s", "USAGE", "-o", "value", path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no answer: the disk doesn't respond"
    if result.returncode == NOTHING_FOUND:
        return ""
    found = " ".join(result.stdout.decode("utf-8", "replace").split())
    return found or ("nothing conclusive (status %d)" % result.returncode)


def busy(path: str) -> bool:
    """Does the kernel use this disk: as a mount in any namespace, as part of an array, as swap?"""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as problem:
        if problem.errno == errno.EBUSY:
            return True
        if problem.errno not in (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM):
            raise UnusableDisk("%s: %s" % (path, os.strerror(problem.errno or 0))) from None
    return False


def flush(point: str) -> str:
    """Write a filesystem's buffers to its disk; returns why that failed."""
    try:
        folder = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            namespaces.flush(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        return "its last writes failed (%s)" % os.strerror(problem.errno or 0)
    return ""


def users_text(number: str) -> str:
    """The processes that use a disk, as the end of a sentence; empty if none is found. Processes that only have it
    mounted are named if none uses it, because most of their namespaces lose it together with the machine's."""
    if not number:
        return ""
    device = os.makedev(*map(int, number.split(":")))
    pids = [pid for pid in process_tree.all_pids() if pid != os.getpid()]
    found = [pid for pid in pids if _uses(pid, device)] or [pid for pid in pids if _sees(pid, number)]
    names = ["%s (process %d)" % (command_of(pid), pid) for pid in found[:USERS_NAMED]]
    more = ["%d more" % (len(found) - USERS_NAMED)] if len(found) > USERS_NAMED else []
    return " by " + ", ".join(names + more) if found else ""


def _uses(pid: int, device: int) -> bool:
    """Does a process use the disk by an open file, its root or its working directory?"""
    base = "/proc/%d" % pid
    try:
        files = ["%s/fd/%s" % (base, name) for name in os.listdir(base + "/fd")]
    except OSError:
        return False  # gone
    return any(_device(path) == device for path in [base + "/cwd", base + "/root", *files])


def _sees(pid: int, number: str) -> bool:
    """Has a process the disk mounted in a mount namespace of its own?"""
    try:
        if os.path.samestat(os.stat("/proc/%d/ns/mnt" % pid), os.stat("/proc/self/ns/mnt")):
            return False
        return any(mounted.number == number for mounted in mountinfo.mounts(str(pid)))
    except OSError:
        return False  # gone


def _device(path: str) -> int:
    try:
        return os.stat(path).st_dev
    except OSError:
        return -1


def command_of(pid: int) -> str:
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "a process"

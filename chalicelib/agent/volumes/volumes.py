"""The volumes of one task, disks and folders, for plain processes and containers.

The supervisor mounts a disk in a place that only root can enter (`disks`). A container gets a bind mount of that place.
For a plain process, the bind mount is in a mount namespace that the supervisor enters, too, so that files which it
prepares for the task land on the volume, and two tasks may have different volumes at one path. A folder of the machine
needs no mount of its own, but more care (`folders`).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ..kernel import mountinfo, namespaces
from ..kernel.task_runtime import TaskError, VolumeUser
from ..kernel.tasks import TaskFolder
from ..runtimes.accounts import outside
from . import folders
from .bound_folders import BoundFolder
from .disks import CLOSED, TaskDisk
from .holds import Holds, valid_id
from .signatures import UnusableDisk

DISK, FOLDER = "disk", "folder"
PATIENCE = 5.0  # seconds for the last users of a disk to end; the kernel removes namespaces with a delay
STEP = 0.05
FOR_ALL = 0o777  # the mode of a folder that tasks with changing user ids share
ENGINES = ("/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet")

Entry = Mapping[str, Any]  # a TaskVolume of the contract, or what a later plane sends instead


class TaskVolumes:
    """A task's volumes, perhaps none."""

    def __init__(self, folder: TaskFolder, entries: Sequence[Entry], holds: Optional[Holds] = None) -> None:
        self._folder, self.entries, self._holds = folder, entries, holds or Holds()
        self._outside: Optional[int] = None  # the machine's mount namespace, while this process is in the task's
        self._fresh: List[int] = []  # folders that were created for this task and have no owner yet
        self.troubles: List[str] = []

    @property
    def ids(self) -> List[str]:
        return [entry["volume"] for entry in self.entries if entry.get("kind") == DISK]

    # Mounting --------------------------------------------------------------------------------------------------------

    def mount(self, pause: Callable[[float], None], report: Callable[[str], None]) -> None:
        """Mount the task's disks. `report` gets messages about delays. Raises TaskError."""
        for entry in self.entries:
            _check(entry)
        disks = [entry for entry in self.entries if entry["kind"] == DISK]
        if not disks:
            return
        for entry in disks:
            with _naming(entry):
                if os.geteuid() != 0:
                    raise UnusableDisk("only root can mount disks, and the agent here isn't root; run it as root")
                self._holds.begin(self._folder.task, self._folder.data)
                self._hold(entry["volume"], device=entry.get("device") or {}, name=name_of(entry))
        for entry in disks:
            with _naming(entry):
                self._disk(entry).mount(pause, report)

    def enter(self, account: VolumeUser) -> None:
        """For a plain process: make the volumes visible at their paths, to this process and its children."""
        if not self.entries:
            return
        if os.geteuid() != 0:
            raise TaskError(
                "volume_error",
                "volume %s: only root can mount volumes for plain processes, and the agent here isn't root; run it as "
                "root, or install a container engine on this machine" % name_of(self.entries[0]),
            )
        for entry in self.entries:
            with _naming(entry):
                folders.refuse(entry["path"], self._protected())
                self._holds.begin(self._folder.task, self._folder.data)
        self._outside = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        with _naming(self.entries[0]):
            namespaces.unshare_mounts()
        for entry in self.entries:
            with _naming(entry):
                self._bind(entry, account)
        with _naming(self.entries[0]):
            namespaces.detach_volumes()

    def for_container(self) -> List[Dict[str, Any]]:
        """The mounts for the engine's create call. Missing folders are created; `hand_over` gives them to the job."""
        return [self._for_container(entry, number) for number, entry in enumerate(self.entries)]

    def _for_container(self, entry: Entry, number: int) -> Dict[str, Any]:
        if entry["kind"] == DISK:
            source = self._holds.point(entry["volume"])
        else:
            with _naming(entry):
                folders.refuse(entry["source"], self._private())
                opened = folders.open_folder(entry["source"], folders.maker(folders.UNFINISHED))
                try:
                    source = self._pin(opened, number)
                except PermissionError:  # without the right to mount, the engine gets the path itself
                    source = entry["source"]
                if folders.unfinished(opened):
                    self._fresh.append(opened)
                else:
                    os.close(opened)
        mount = {"Type": "bind", "Source": source, "Target": entry["path"], "ReadOnly": _read_only(entry)}
        return dict(mount, BindOptions={"Propagation": "rprivate"})

    def _pin(self, opened: int, number: int) -> str:
        """Mount an open folder where only root can enter, and return that path for the engine: a user who may write
        above the folder could replace it meanwhile. The container's own mount of it outlives this one."""
        name = "%s-%d" % (self._folder.task, number)
        self._holds.begin(self._folder.task, self._folder.data)
        self._hold(None, pinned=[name])
        self._unpin(name)  # in case an earlier supervisor was killed
        point = self._holds.point(name)
        os.mkdir(point, CLOSED)
        namespaces.mount(_fd(opened), point, namespaces.MS_BIND | namespaces.MS_REC)
        return point

    def _unpin(self, name: str) -> None:
        point = self._holds.point(name)
        if mountinfo.at(point):
            # Mounts below are shared with the folder itself, which would lose them, too.
            namespaces.mount("none", point, namespaces.MS_REC | namespaces.MS_PRIVATE)
            namespaces.unmount(point, namespaces.MNT_DETACH)
        if os.path.isdir(point):
            os.rmdir(point)

    def hand_over(self, owner: Callable[[], Tuple[int, int]]) -> None:
        for opened in self._fresh:
            folders.give(opened, *owner())
            os.close(opened)
        self._fresh = []

    def check_visible(self, mode: Callable[[str], Optional[int]]) -> None:
        """Raise TaskError if the engine doesn't see the mounts, because the job would write beside them. `mode` returns
        the mode of a path in the container."""
        hold = self._holds.of(self._folder.task) or {}
        for entry in self.entries:
            mounted = entry["kind"] == DISK or bool(hold.get("pinned"))
            if mounted and not (mode(entry["path"]) or 0) & 0o777:
                raise TaskError(
                    "volume_error",
                    "volume %s: the container engine of this machine doesn't see what is mounted here; run it in the "
                    "machine's own mount namespace (not from a snap)" % name_of(entry),
                )

    def _bind(self, entry: Entry, account: VolumeUser) -> None:
        source = self._source(entry, account)
        # Recorded before the folders are created, and under a lock because tasks may share a mount point.
        with self._holds.locked("mount-points"):
            shared = [place for place in folders.above(entry["path"]) if place in self._points_of_other_tasks()]
            self._hold(None, made=shared + folders.missing(entry["path"]))
            target = folders.open_folder(entry["path"], folders.maker(0o755))
        try:
            namespaces.mount(_fd(source), _fd(target), namespaces.MS_BIND | namespaces.MS_REC)
        finally:
            os.close(source)
            os.close(target)
        on_top = folders.open_folder(entry["path"])
        read_only = namespaces.MS_RDONLY if _read_only(entry) else 0
        namespaces.restrict(_fd(on_top), namespaces.MS_NOSUID | namespaces.MS_NODEV | read_only)
        os.close(on_top)

    def _source(self, entry: Entry, account: VolumeUser) -> int:
        if entry["kind"] == DISK:
            return folders.open_folder(self._holds.point(entry["volume"]))
        folders.refuse(entry["source"], self._private())
        mode = 0o755 if account.held is None else FOR_ALL
        with account.acting():  # a folder that this user can't reach isn't mounted for it either
            try:
                return folders.open_folder(entry["source"], folders.maker(mode))
            except PermissionError:
                raise UnusableDisk(
                    "there is no folder %s on this machine, and this job's user may not make it; make it there and "
                    "open it to jobs, for example with `sudo install -d -m 1777 %s`"
                    % (entry["source"], entry["source"])
                ) from None

    def _private(self) -> Dict[str, str]:
        """Folders of this machine that jobs can't have as volumes, with their purposes."""
        found = {os.path.realpath(self._folder.data): "the agent's own folder"}
        socket = os.path.dirname(os.path.realpath(str(self._folder.launch().get("socket") or "")))
        if socket not in ("", "/"):
            found[socket] = "the folder of the container engine's socket"
        found.update({place: "the container engine's own folder" for place in ENGINES})
        return found

    def _protected(self) -> Dict[str, str]:
        """Folders over which nothing may be mounted for a plain process, with their purposes."""
        found = {os.path.realpath(self._folder.data): "the agent's own folder"}
        found[os.path.dirname(outside(self._folder.task))] = "the folder of jobs' homes"
        found.update({os.path.realpath(place): "the agent's Python" for place in (sys.prefix, sys.base_prefix)})
        return found

    # Unmounting -----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Go back to the machine's own mount namespace."""
        if self._outside is not None:
            namespaces.enter_open({"mnt": self._outside})
            self._outside = None

    def release(self, patience: float = PATIENCE) -> Dict[str, str]:
        """Unmount what this task may have mounted; any process may repeat that. Returns the volumes that can't be
        unmounted yet, each with the reason."""
        until = time.monotonic() + patience
        while True:
            held = self._try_release()
            if not held or time.monotonic() > until:
                return held
            time.sleep(STEP)

    def _try_release(self) -> Dict[str, str]:
        hold = self._holds.of(self._folder.task)
        held: Dict[str, str] = {}
        if hold is None:
            return held
        for volume, record in list(hold["volumes"].items()):
            disk = self._disk({"volume": volume, "device": record["device"], "name": record.get("name")})
            try:
                reason = disk.unmount()
            except (OSError, UnusableDisk) as problem:
                reason = str(problem)
            if reason:
                held[volume] = "volume %s can't be unmounted yet: %s" % (disk.name, reason.strip())
            elif disk.trouble:
                self.troubles.append("volume %s: %s" % (disk.name, disk.trouble))
        for name in hold.get("pinned", ()):
            self._unpin(name)
        with self._holds.locked("mount-points"):
            folders.remove(sorted(set(hold["made"]) - self._points_of_other_tasks(), reverse=True))
            if held:
                self._holds.write(self._folder.task, dict(self._holds.of(self._folder.task) or hold, made=[]))
            else:
                self._holds.forget(self._folder.task)
        return held

    # Records ----------------------------------------------------------------------------------------------------------

    def _hold(self, volume: Optional[str], made: Sequence[str] = (), pinned: Sequence[str] = (), **fields: Any) -> None:
        hold = self._holds.of(self._folder.task)
        assert hold is not None  # written by `Holds.begin`, before anything is mounted
        for kind, names in (("made", made), ("pinned", pinned)):
            hold[kind] = list(dict.fromkeys([*hold.get(kind, ()), *names]))
        if volume is not None:
            hold["volumes"].setdefault(volume, {}).update(fields)
        self._holds.write(self._folder.task, hold)

    def _points_of_other_tasks(self) -> Set[str]:
        return {place for hold in self._holds.of_other_tasks(self._folder.task) for place in hold["made"]}

    def _disk(self, entry: Entry) -> TaskDisk:
        kind = BoundFolder if (entry.get("device") or {}).get("folder") else TaskDisk
        return kind(entry, self._holds, self._folder.task)


def sweep(data: str, holds: Optional[Holds] = None) -> List[str]:
    """Unmount what tasks without a folder left mounted. Returns the reasons for what can't be unmounted."""
    found, problems = holds or Holds(), []  # type: Holds, List[str]
    for task in found.tasks():
        hold = found.of(task)
        folder = TaskFolder(data, task)
        if hold is not None and hold["data"] == data and not os.path.exists(folder.path):
            problems += TaskVolumes(folder, [], found).release().values()
    return problems


def _read_only(entry: Entry) -> bool:
    """A disk may be mounted only for reading; a folder of the machine is what its permissions say."""
    return entry["kind"] == DISK and bool(entry.get("read_only"))


def name_of(entry: Entry) -> str:
    return str(entry.get("name") or entry.get("volume") or entry.get("source") or "")


def _check(entry: Entry) -> None:
    """Raise TaskError for a volume that this agent doesn't support."""
    with _naming(entry):
        if entry.get("kind") not in (DISK, FOLDER):
            raise UnusableDisk("this agent knows no volumes of kind %r; update it" % entry.get("kind"))
        if not re.match(r"/[^\0]", str(entry.get("path") or "")):
            raise UnusableDisk("it has no path to be mounted at")
        if entry["kind"] == DISK:
            valid_id(str(entry.get("volume")))


@contextlib.contextmanager
def _naming(entry: Entry) -> Iterator[None]:
    """Turn errors into a TaskError that names this volume."""
    try:
        yield
    except UnusableDisk as problem:
        raise TaskError("volume_error", "volume %s: %s" % (name_of(entry), problem)) from None
    except OSError as problem:
        message = "%s: %s" % (problem.filename, problem.strerror) if problem.filename else str(problem)
        raise TaskError("volume_error", "volume %s: %s" % (name_of(entry), message)) from None


def _fd(opened: int) -> str:
    return "/proc/self/fd/%d" % opened

"""The volumes of one task, of both kinds, in both runtimes.

A disk is mounted by the supervisor in a place that only root can enter (`disks`). A container gets a bind mount of
that. A plain process gets it in a mount namespace: the supervisor moves there with the task, so that whatever it
prepares for the task lands on the volume, and two tasks may have different volumes at one path. A folder of the machine
needs no mount of its own, but more care (`folders`).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ..kernel import mountinfo, namespaces
from ..kernel.task_runtime import TaskError, VolumeUser
from ..kernel.tasks import TaskFolder
from ..runtimes.accounts import outside
from . import folders
from .bound_folders import BoundFolder
from .disks import CLOSED, TaskDisk
from .holds import Holds, checked
from .signatures import UnusableDisk

DISK, FOLDER = "disk", "folder"
PATIENCE = 5.0  # seconds for the last users of a disk to be gone; the kernel takes namespaces apart in its own time
STEP = 0.05
FOR_ALL = 0o777  # of a folder of a task whose user id will be another's: the next task has another one
ENGINES = ("/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet")

Entry = Dict[str, Any]


class TaskVolumes:
    """A task's volumes. Without any, nothing here does anything."""

    def __init__(self, folder: TaskFolder, entries: List[Entry], holds: Optional[Holds] = None) -> None:
        self._folder, self.entries, self._holds = folder, entries, holds or Holds()
        self._outside: Optional[int] = None  # the machine's mount namespace, while we are in the task's
        self._fresh: List[int] = []  # folders that were made for this task and aren't anybody's yet
        self.troubles: List[str] = []

    @property
    def ids(self) -> List[str]:
        return [entry["volume"] for entry in self.entries if entry.get("kind") == DISK]

    # Before the task ------------------------------------------------------------------------------------------------

    def mount(self, pause: Callable[[float], None], tell: Callable[[str], None]) -> None:
        """All its disks. Raises TaskError."""
        for entry in self.entries:
            _checked(entry)
        wanted = [entry for entry in self.entries if entry["kind"] == DISK]
        if not wanted:
            return
        for entry in wanted:
            with _named(entry):
                if os.geteuid() != 0:
                    raise UnusableDisk("only root can mount disks, and the agent here isn't root; run it as root")
                self._holds.begin(self._folder.task, self._folder.data)
                self._hold(entry["volume"], device=entry.get("device") or {}, name=name_of(entry))
        for entry in wanted:
            with _named(entry):
                self._disk(entry).mount(pause, tell)

    def enter(self, account: VolumeUser) -> None:
        """For a plain process: from now on this process, and what it starts, finds the volumes at their paths."""
        if not self.entries:
            return
        if os.geteuid() != 0:
            raise TaskError(
                "volume_error",
                "volume %s: only root can mount volumes for plain processes, and the agent here isn't root; run it as "
                "root, or install a container engine on this machine" % name_of(self.entries[0]),
            )
        for entry in self.entries:
            with _named(entry):
                folders.refuse(entry["path"], self._never_covered())
                self._holds.begin(self._folder.task, self._folder.data)
        self._outside = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        with _named(self.entries[0]):
            namespaces.unshare_mounts()
        for entry in self.entries:
            with _named(entry):
                self._bind(entry, account)
        with _named(self.entries[0]):
            namespaces.detach_volumes()

    def for_container(self) -> List[Dict[str, Any]]:
        """For the engine's create call. Missing folders are made, and given to the job's user by `hand_over`."""
        return [self._for_container(entry, number) for number, entry in enumerate(self.entries)]

    def _for_container(self, entry: Entry, number: int) -> Dict[str, Any]:
        if entry["kind"] == DISK:
            source = self._holds.point(entry["volume"])
        else:
            with _named(entry):
                folders.refuse(entry["source"], self._private())
                opened = folders.opened(entry["source"], folders.maker(folders.UNFINISHED))
                try:
                    source = self._pinned(opened, number)
                except PermissionError:  # who may not mount leaves it to the engine, which goes by the path
                    source = entry["source"]
                if folders.unfinished(opened):
                    self._fresh.append(opened)
                else:
                    os.close(opened)
        mount = {"Type": "bind", "Source": source, "Target": entry["path"], "ReadOnly": bool(entry.get("read_only"))}
        return dict(mount, BindOptions={"Propagation": "rprivate"})

    def _pinned(self, opened: int, number: int) -> str:
        """Where the engine finds the folder that was opened: whoever may write above it could exchange it meanwhile,
        but only root gets to this place. The container's own mount of it outlives ours."""
        name = "%s-%d" % (self._folder.task, number)
        self._holds.begin(self._folder.task, self._folder.data)
        self._hold(None, pinned=[name])
        self._unpin(name)  # of a supervisor that was killed
        point = self._holds.point(name)
        os.mkdir(point, CLOSED)
        namespaces.mount(_fd(opened), point, namespaces.MS_BIND | namespaces.MS_REC)
        return point

    def _unpin(self, name: str) -> None:
        point = self._holds.point(name)
        if mountinfo.at(point):
            # What is mounted below is shared with the folder itself, which would lose it, too.
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
        """Refuses a container whose engine doesn't see the disks: it would write beside them. `mode` tells that of a
        path in the container."""
        hold = self._holds.of(self._folder.task) or {}
        for entry in self.entries:
            ours = entry["kind"] == DISK or bool(hold.get("pinned"))
            if ours and not (mode(entry["path"]) or 0) & 0o777:
                raise TaskError(
                    "volume_error",
                    "volume %s: the container engine of this machine doesn't see what is mounted here; run it in the "
                    "machine's own mount namespace (not from a snap)" % name_of(entry),
                )

    def _bind(self, entry: Entry, account: VolumeUser) -> None:
        source = self._source(entry, account)
        # Noted before it is made. Another task may use the same mount point, so all of this is one step.
        with self._holds.locked("mount-points"):
            made = [place for place in folders.above(entry["path"]) if place in self._made_by_others()]
            self._hold(None, made=made + folders.missing(entry["path"]))
            target = folders.opened(entry["path"], folders.maker(0o755))
        try:
            namespaces.mount(_fd(source), _fd(target), namespaces.MS_BIND | namespaces.MS_REC)
        finally:
            os.close(source)
            os.close(target)
        on_top = folders.opened(entry["path"])
        read_only = namespaces.MS_RDONLY if entry.get("read_only") else 0
        namespaces.restrict(_fd(on_top), namespaces.MS_NOSUID | namespaces.MS_NODEV | read_only)
        os.close(on_top)

    def _source(self, entry: Entry, account: VolumeUser) -> int:
        if entry["kind"] == DISK:
            return folders.opened(self._holds.point(entry["volume"]))
        folders.refuse(entry["source"], self._private())
        mode = 0o755 if account.held is None else FOR_ALL
        with account.acting():  # what this user can't reach, it doesn't get to see here either
            try:
                return folders.opened(entry["source"], folders.maker(mode))
            except PermissionError:
                raise UnusableDisk(
                    "there is no folder %s on this machine, and this job's user may not make it; make it there and "
                    "open it to jobs, for example with `sudo install -d -m 1777 %s`"
                    % (entry["source"], entry["source"])
                ) from None

    def _private(self) -> Dict[str, str]:
        """Folders of this machine that are no job's business."""
        found = {os.path.realpath(self._folder.data): "the agent's own folder"}
        socket = os.path.dirname(os.path.realpath(str(self._folder.launch().get("socket") or "")))
        if socket not in ("", "/"):
            found[socket] = "the folder of the container engine's socket"
        found.update({place: "the container engine's own folder" for place in ENGINES})
        return found

    def _never_covered(self) -> Dict[str, str]:
        """Where nothing may be mounted for a plain process."""
        found = {os.path.realpath(self._folder.data): "the agent's own folder"}
        found[os.path.dirname(outside(self._folder.task))] = "the folder of jobs' homes"
        found.update({os.path.realpath(place): "the agent's Python" for place in (sys.prefix, sys.base_prefix)})
        return found

    # After the task -------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Back to where the machine's own mounts are seen."""
        if self._outside is not None:
            namespaces.enter_open({"mnt": self._outside})
            self._outside = None

    def release(self, patience: float = PATIENCE) -> Dict[str, str]:
        """Unmounts what this task may have mounted; returns what can't be yet, and why. Any process may repeat it."""
        until = time.monotonic() + patience
        while True:
            held = self._released()
            if not held or time.monotonic() > until:
                return held
            time.sleep(STEP)

    def _released(self) -> Dict[str, str]:
        hold = self._holds.of(self._folder.task)
        held: Dict[str, str] = {}
        if hold is None:
            return held
        for volume, noted in list(hold["volumes"].items()):
            disk = self._disk({"volume": volume, "device": noted["device"], "name": noted.get("name")})
            try:
                kept = disk.unmount()
            except (OSError, UnusableDisk) as problem:
                kept = str(problem)
            if kept:
                held[volume] = "volume %s can't be unmounted yet: %s" % (disk.name, kept.strip())
            elif disk.trouble:
                self.troubles.append("volume %s: %s" % (disk.name, disk.trouble))
        for name in hold.get("pinned", ()):
            self._unpin(name)
        with self._holds.locked("mount-points"):
            folders.remove(sorted(set(hold["made"]) - self._made_by_others(), reverse=True))
            if held:
                self._holds.write(self._folder.task, dict(self._holds.of(self._folder.task) or hold, made=[]))
            else:
                self._holds.forget(self._folder.task)
        return held

    # Notes ------------------------------------------------------------------------------------------------------------

    def _hold(self, volume: Optional[str], made: Sequence[str] = (), pinned: Sequence[str] = (), **news: Any) -> None:
        hold = self._holds.of(self._folder.task)
        assert hold is not None  # begun before anything is mounted
        for kind, told in (("made", made), ("pinned", pinned)):
            hold[kind] = list(dict.fromkeys([*hold.get(kind, ()), *told]))
        if volume is not None:
            hold["volumes"].setdefault(volume, {}).update(news)
        self._holds.write(self._folder.task, hold)

    def _made_by_others(self) -> Set[str]:
        return {place for hold in self._holds.others(self._folder.task) for place in hold["made"]}

    def _disk(self, entry: Entry) -> TaskDisk:
        kind = BoundFolder if (entry.get("device") or {}).get("folder") else TaskDisk
        return kind(entry, self._holds, self._folder.task)


def sweep(data: str, holds: Optional[Holds] = None) -> List[str]:
    """What tasks without a folder left mounted is unmounted; returns what couldn't be, and why."""
    found, kept = holds or Holds(), []  # type: Holds, List[str]
    for task in found.tasks():
        hold = found.of(task)
        folder = TaskFolder(data, task)
        if hold is not None and hold["data"] == data and not os.path.exists(folder.path):
            kept += TaskVolumes(folder, [], found).release().values()
    return kept


def name_of(entry: Entry) -> str:
    return str(entry.get("name") or entry.get("volume") or entry.get("source") or "")


def _checked(entry: Entry) -> None:
    """Raises TaskError for what this agent doesn't know."""
    with _named(entry):
        if entry.get("kind") not in (DISK, FOLDER):
            raise UnusableDisk("this agent knows no volumes of kind %r; update it" % entry.get("kind"))
        if not re.match(r"/[^\0]", str(entry.get("path") or "")):
            raise UnusableDisk("it has no path to be mounted at")
        if entry["kind"] == DISK:
            checked(str(entry.get("volume")))


@contextlib.contextmanager
def _named(entry: Entry) -> Iterator[None]:
    """Whatever goes wrong is said of this volume."""
    try:
        yield
    except UnusableDisk as problem:
        raise TaskError("volume_error", "volume %s: %s" % (name_of(entry), problem)) from None
    except OSError as problem:
        words = "%s: %s" % (problem.filename, problem.strerror) if problem.filename else str(problem)
        raise TaskError("volume_error", "volume %s: %s" % (name_of(entry), words)) from None


def _fd(opened: int) -> str:
    return "/proc/self/fd/%d" % opened

"""Which tasks of this machine have which disks mounted, and which mount points were made for them.

A disk is mounted once and shared by the tasks that use it, also by those of several agents. Who uses it can't be
counted in memory, because whoever counts may be killed; so each task has a file here that says what it may have
mounted. It is written before anything is mounted, and shortened after it was unmounted. Where a machine forgets its
mounts, in a restart, it forgets /run too.

The folder is a mount that is shared with namespaces which are slaves of the machine's: what is unmounted here is
unmounted there. Without that, a namespace that anybody made meanwhile would keep the disk.

A lock for each disk lets one task at a time look at it, format, mount and unmount it. The kernel releases it with its
last holder, and a formatting program holds it as well: what it does is over before anybody else looks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..kernel import mountinfo, namespaces
from ..kernel.tasks import TaskFolder, read_json, take_lock, write_slot
from .signatures import UnusableDisk

AGAIN_EVERY = 0.5  # seconds between tries for a lock: formatting a disk takes seconds
Hold = Dict[str, Any]  # {data, volumes: {id: {device, name, node}}, made: [folders], pinned: [points]}


class Holds:
    def __init__(self, root: str = namespaces.VOLUMES) -> None:
        self.root = root
        self._holds, self._locks, self._points = (os.path.join(root, name) for name in ("holds", "locks", "disks"))

    def begin(self, task: str, data: str) -> None:
        """From here on the task has a file, and what it may mount goes into it. Raises UnusableDisk."""
        with self._alone():
            for place in (self.root, self._holds, self._locks, self._points):
                try:
                    os.mkdir(place, 0o700)
                except FileExistsError:
                    found = os.lstat(place)
                    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                        raise UnusableDisk("%s was made by user %d; delete it" % (place, found.st_uid)) from None
                if place == self.root:
                    self._share()
            if self.of(task) is None:
                self.write(task, {"data": data, "volumes": {}, "made": []})

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else makes or deletes these folders. They can't hold the lock themselves, as they may go."""
        above = os.open(os.path.dirname(self.root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(above, fcntl.LOCK_EX)
            yield
        finally:
            os.close(above)

    def _share(self) -> None:
        if not mountinfo.at(self.root):
            namespaces.mount(self.root, self.root, namespaces.MS_BIND)
        if not os.path.isdir(self._points):  # the last to be made: until then, nobody has anything mounted here
            # Where /run is shared, this clone of it is its peer: each disk would be mounted below, on /run, as well.
            namespaces.mount("none", self.root, namespaces.MS_PRIVATE)
        namespaces.mount("none", self.root, namespaces.MS_SHARED)

    def point(self, volume: str) -> str:
        """Where a volume's disk is mounted."""
        return os.path.join(self._points, checked(volume))

    def of(self, task: str) -> Optional[Hold]:
        return read_json(os.path.join(self._holds, task))

    def write(self, task: str, hold: Hold) -> None:
        write_slot(os.path.join(self._holds, task), hold)

    def forget(self, task: str) -> None:
        for name in self._files():
            if name.partition(".")[0] == task:  # writes that were cut off, too
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._holds, name))

    def tasks(self) -> List[str]:
        return [name for name in self._files() if "." not in name]  # else a write that was cut off

    def _files(self) -> List[str]:
        return sorted(os.listdir(self._holds)) if os.path.isdir(self._holds) else []

    def tidy(self) -> None:
        """Leave nothing here if no task has anything mounted. Only empty folders go: others are somebody's."""
        if not os.path.isdir(self.root):
            return
        with self._alone(), contextlib.suppress(OSError):
            if self.others(""):
                return
            for point in os.listdir(self._points):
                os.rmdir(os.path.join(self._points, point))
            for folder in (self._holds, self._locks):
                for name in os.listdir(folder):
                    os.unlink(os.path.join(folder, name))
            for place in (self._holds, self._locks, self._points):
                os.rmdir(place)
            for _ in mountinfo.at(self.root):
                namespaces.unmount(self.root)
            os.rmdir(self.root)

    def others(self, task: str) -> List[Hold]:
        """Of tasks that there are: one whose folder is gone, with its agent, will never let go of anything."""
        found = ((name, self.of(name)) for name in self.tasks() if name != task)
        return [hold for name, hold in found if hold and os.path.exists(TaskFolder(hold["data"], name).path)]

    def wanted_by_others(self, task: str, volume: str) -> bool:
        return any(volume in hold["volumes"] for hold in self.others(task))

    @contextlib.contextmanager
    def locked(self, name: str, pause: Callable[[float], None] = time.sleep) -> Iterator[int]:
        """Its file is there only meanwhile: who has it deletes it, and who comes to a deleted one takes the next."""
        path = os.path.join(self._locks, checked(name))
        lock = take_lock(path)
        while lock is None or not _is_at(lock, path):
            if lock is not None:
                os.close(lock)
            else:
                pause(AGAIN_EVERY)
            lock = take_lock(path)
        try:
            yield lock
        finally:
            if _is_at(lock, path):
                os.unlink(path)
            os.close(lock)


def _is_at(lock: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def checked(name: str) -> str:
    if not re.match(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}$", name):
        raise UnusableDisk("%r isn't a volume's id" % name)
    return name

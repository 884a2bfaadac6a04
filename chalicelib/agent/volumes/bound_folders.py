"""A volume that is a folder of the machine: the simulated cloud's, where the kernel refuses loop devices.

It is bind-mounted at a disk's mount point, so jobs see no difference. There is nothing to format or check. The kernel
doesn't tell whether a folder is in use, so it counts as unmounted when no process has it mounted any more.
"""

from __future__ import annotations

import os
from typing import Callable

from ..kernel import mountinfo, namespaces, process_tree
from . import folders
from .disks import CLOSED, Pause, TaskDisk, command_of


class BoundFolder(TaskDisk):
    def mount(self, pause: Pause, report: Callable[[str], None]) -> str:
        with self._holds.locked(self.volume, pause):
            source = folders.open_folder(self._identity["folder"])
            try:
                mounted = mountinfo.at(self.point)
                if mounted and os.path.samestat(os.stat(self.point), os.fstat(source)):
                    self._check_writable(mounted[-1])
                else:
                    self._clear_point(mounted)
                    os.makedirs(self.point, mode=CLOSED, exist_ok=True)
                    namespaces.mount("/proc/self/fd/%d" % source, self.point, namespaces.MS_BIND)
                    read_only = namespaces.MS_RDONLY if self.read_only else 0
                    namespaces.restrict(self.point, namespaces.MS_NOSUID | namespaces.MS_NODEV | read_only)
            finally:
                os.close(source)
            entry = mountinfo.at(self.point)[-1]
            self._note(number=entry.number, root=entry.root)
        return self.point

    def _users(self) -> str:
        user = next((pid for pid in process_tree.all_pids() if pid != os.getpid() and self._sees(pid)), None)
        return "" if user is None else "by %s (process %d)" % (command_of(user), user)

    def _sees(self, pid: int) -> bool:
        number, root = self._record().get("number"), self._record().get("root")
        if not root:
            return False
        try:
            found = mountinfo.mounts(str(pid))
        except OSError:
            return False  # gone
        return any(each.number == number and (each.root + "/").startswith(root + "/") for each in found)

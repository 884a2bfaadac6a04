"""The user that a plain process runs as, and its folders.

If root runs the agent, a task gets a user of its own (`users`), or the one that its spec names if the server permits
that, with no further rights: no supplementary groups except those of its GPUs, and no gain from a set-uid program. Its
files are created with its rights, never the agent's, because its user chooses the paths, and a path may lead anywhere.
"""

from __future__ import annotations

import contextlib
import glob
import grp
import os
import pwd
import stat
from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Optional, Tuple

from ..kernel.task_runtime import OWN_USER, TaskError
from ..kernel.tasks import TaskFolder, delete_tree
from . import users
from .users import LEAST, MOST, HeldId, Users

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask

OUTSIDE = "/var/lib/dstack-tasks"
FORMER_OUTSIDE = "/var/tmp/dstack-task-"  # the prefix of that folder in earlier versions
NOBODIES = (65534, 65535)  # the overflow ids
DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri/*", "/dev/tenstorrent/*", "/dev/accel/*")


class TaskAccount:
    """The user and group a task runs as."""

    def __init__(self, requested: Any) -> None:
        self.uid, self.gid = os.getuid(), os.getgid()
        self.confined = False  # True: no rights but those of its user and group
        self.groups: List[int] = []
        self.held: Optional[HeldId] = None
        user, group = user_and_group(requested)
        entry = self._user(user) if user not in (None, "") else self._entry(self.uid)
        self.name = entry.pw_name if entry else str(self.uid)
        if user not in (None, ""):
            self.uid = entry.pw_uid if entry else int(user)
            self.gid = entry.pw_gid if entry else self.uid
            self.name = entry.pw_name if entry else name_of(self.uid)
        self.listed, self.primary = entry is not None, self.gid
        if group not in (None, ""):
            self.gid = self._group(group)
        if self.uid != os.getuid() and os.getuid() != 0:
            agent = self._entry(os.getuid())
            raise TaskError(
                "executor_error",
                "user %s: the agent here runs as %s, and only root can run a task as somebody else; leave `user` out "
                "or start the agent as root" % (self.name, agent.pw_name if agent else os.getuid()),
            )

    @staticmethod
    def _entry(uid: int) -> "Optional[pwd.struct_passwd]":
        try:
            return pwd.getpwuid(uid)
        except KeyError:
            return None

    def _user(self, user: Any) -> "Optional[pwd.struct_passwd]":
        if str(user).isdecimal():
            return self._entry(int(user))
        try:
            return pwd.getpwnam(str(user))
        except KeyError:
            raise TaskError("executor_error", "user %s: there is no such user on this machine" % user) from None

    @staticmethod
    def _group(group: Any) -> int:
        if str(group).isdecimal():
            return int(group)
        try:
            return grp.getgrnam(str(group)).gr_gid
        except KeyError:
            raise TaskError("executor_error", "group %s: there is no such group on this machine" % group) from None

    def is_named(self, user: str) -> bool:
        try:
            return pwd.getpwnam(user).pw_uid == self.uid
        except KeyError:
            return False

    @property
    def group_name(self) -> str:
        """The name of its group in this machine's list; empty if the list doesn't have it."""
        try:
            return grp.getgrgid(self.gid).gr_name
        except KeyError:
            return ""

    @property
    def foreign(self) -> bool:
        return self.uid != os.getuid()

    def become(self) -> None:
        if self.confined:
            users.become(self.uid, self.gid, self.groups)
        elif os.getuid() == 0 and (self.uid or self.gid != os.getgid()):
            os.initgroups(self.name, self.gid) if self._entry(self.uid) else os.setgroups([self.gid])
            os.setgid(self.gid)
            os.setuid(self.uid)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Touch files with this account's rights."""
        mask = os.umask(0o022)
        groups, gid, uid = os.getgroups(), os.getegid(), os.geteuid()
        try:
            if self.foreign:
                os.setgroups(self.groups)
                os.setegid(self.gid)
                os.seteuid(self.uid)
            yield
        finally:
            if self.foreign:
                os.seteuid(uid)
                os.setegid(gid)
                os.setgroups(groups)
            os.umask(mask)


def server_user() -> str:
    """The user as whom clients log in to the jobs' SSH servers: the agent's own, as which sessions begin."""
    return "root" if os.getuid() == 0 else listed_user(os.getuid()) or str(os.getuid())


def listed_user(uid: int) -> str:
    """The name in this host's list of users; empty if the list doesn't have it, as in many containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def name_of(uid: int) -> str:
    """A name for a user that the machine doesn't list."""
    return "dstack-%d" % uid


def user_and_group(requested: Any) -> Tuple[Any, Any]:
    """The user and the group that a spec names; each empty or None if it names none."""
    if not isinstance(requested, dict):
        name, _, of_group = str("" if requested is None else requested).partition(":")
        return name, of_group
    user, group = requested.get("username"), requested.get("groupname")
    return requested.get("uid") if user in (None, "") else user, requested.get("gid") if group in (None, "") else group


def account_of(spec: LaunchedTask, pool: Users, task: str, with_gpus: bool = False) -> TaskAccount:
    requested = spec.get("user")
    chosen = any(part not in (None, "") for part in user_and_group(requested))
    if chosen and not spec.get("user_permitted"):
        raise refused(requested, "only admins of the project whose host this is may name one of the host's users")
    account = TaskAccount(requested)
    if pool.isolation != OWN_USER:
        return account
    if chosen:
        check_requested(account, requested, pool, str(spec.get("host_user") or ""))
    else:
        account.held = pool.take(task)
        account.uid = account.gid = account.held.uid
        account.name = name_of(account.uid)
    account.confined, account.groups = True, [account.gid] + (device_groups() if with_gpus else [])
    return account


def check_requested(account: TaskAccount, requested: Any, pool: Users, host_user: str) -> None:
    """Raise TaskError for a user with more rights than a person's account on this machine has."""
    if not LEAST <= account.uid <= MOST or account.uid in NOBODIES or account.primary == 0:
        raise refused(requested, "plain processes can't be root or another of the system's users here")
    if account.uid in pool.ids:
        raise refused(requested, "it is one of those that jobs get")
    if account.gid != account.primary:
        raise refused(requested, "plain processes get no group but their user's own, %d" % account.primary)
    if not account.listed and account.group_name:
        raise refused(requested, "this machine doesn't list it, and group %d is %s" % (account.gid, account.group_name))
    if account.is_named(host_user):
        raise refused(requested, "the server logs in to this machine with that account")


def refused(requested: Any, why: str) -> TaskError:
    text = ":".join(str(part) for part in user_and_group(requested) if part not in (None, ""))
    return TaskError(
        "executor_error", "user %s: %s; leave `user` out, or use a host with a container engine" % (text, why)
    )


def device_groups(patterns: Iterable[str] = DEVICES) -> List[int]:
    """The groups that may use this machine's GPUs, if not every user may."""
    found = set()
    for path in (path for pattern in patterns for path in glob.glob(pattern)):
        device = os.stat(path)
        if stat.S_ISCHR(device.st_mode) and device.st_mode & 0o066 == 0o060 and device.st_gid:
            found.add(device.st_gid)
    return sorted(found)


def reachable(path: str, account: TaskAccount) -> bool:
    """Can this account enter all folders above `path`? The agent's data folder may be private to the agent."""
    parent = os.path.dirname(path)
    while account.uid != 0 and parent != os.path.dirname(parent):
        found = os.stat(parent)
        shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
        if not found.st_mode >> shift & 1:
            return False
        parent = os.path.dirname(parent)
    return True


def outside(task: str) -> str:
    """The folder for a task whose user can't reach the task's own folder. Only root may create folders there, so no
    other user can have created it before. It is on disk, unlike /tmp on many machines, and its path is short, because
    those of sockets must be."""
    return os.path.join(OUTSIDE, task)


def delete_outside(task: str) -> None:
    """Delete a task's outside folder; as root also an earlier version's, which any user may have created."""
    delete_tree(outside(task))
    if os.getuid() == 0:
        delete_tree(FORMER_OUTSIDE + task)


def tidy() -> None:
    """Delete the parent of the outside folders, unless a task of some agent on this machine has one."""
    with contextlib.suppress(OSError):
        os.rmdir(OUTSIDE)


def make_home(folder: TaskFolder, account: TaskAccount) -> Tuple[str, str]:
    """Make the task's home and its folder for temporary files (empty: the machine's), which no other user may enter."""
    if not account.foreign:
        os.makedirs(folder.home, mode=0o700, exist_ok=True)
        return folder.home, ""
    base = outside(folder.task)
    try:
        os.makedirs(base, exist_ok=True)
        for path in (OUTSIDE, base, os.path.dirname(folder.path), folder.path):
            os.chmod(path, 0o711)
    except OSError as problem:
        raise TaskError("executor_error", "%s: %s" % (problem.filename, problem.strerror)) from None
    home = folder.home if reachable(folder.home, account) else os.path.join(base, "home")
    scratch = os.path.join(base, "tmp")
    if account.held is not None:
        account.held.set_folders([home, scratch])
    for path in (home, scratch):
        delete_tree(path)  # left by an attempt that didn't start, perhaps as another user
        os.mkdir(path, 0o700)
        os.chown(path, account.uid, account.gid)
    return home, scratch


def make_folder(path: str, account: TaskAccount, field: str = "working directory") -> None:
    try:
        with account.acting():
            os.makedirs(path, mode=0o755, exist_ok=True)
    except OSError as problem:
        raise TaskError("executor_error", "%s %s: %s" % (field, path, problem.strerror)) from None


def write_file(path: str, text: str, account: TaskAccount) -> None:
    make_folder(os.path.dirname(path), account)
    try:
        with account.acting(), open(path, "w") as file:
            file.write(text)
    except OSError as problem:
        raise TaskError("executor_error", "%s: %s" % (path, problem.strerror)) from None

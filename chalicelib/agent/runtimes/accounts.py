"""Which user a plain-process task runs as, and the folders it owns.

If root runs the agent, a task gets its own user (`users`), or the one that its spec names if the server permits that,
with no further rights: no supplementary groups except those of its GPUs, and nothing to gain from a set-uid program.
Its files are created with its rights, never the agent's, because its user chooses the paths, and a path may lead
anywhere.
"""

from __future__ import annotations

import contextlib
import glob
import grp
import os
import pwd
import stat
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from ..kernel.task_runtime import OWN_USER, TaskError
from ..kernel.tasks import TaskFolder, delete_tree
from . import users
from .users import LEAST, MOST, HeldId, Users

OUTSIDE = "/var/lib/dstack-tasks"
EARLIER = "/var/tmp/dstack-task-"  # and its id: where earlier agents made that folder
NOBODIES = (65534, 65535)  # what cannot be expressed is theirs
DEVICES = ("/dev/nvidia*", "/dev/kfd", "/dev/dri/*", "/dev/tenstorrent/*", "/dev/accel/*")


class TaskAccount:
    """The user and group a task runs as."""

    def __init__(self, wanted: Any) -> None:
        self.uid, self.gid = os.getuid(), os.getgid()
        self.confined = False  # has only what its user and group have
        self.groups: List[int] = []
        self.held: Optional[HeldId] = None
        user, group = named(wanted)
        known = self._user(user) if user not in (None, "") else self._entry(self.uid)
        self.name = known.pw_name if known else str(self.uid)
        if user not in (None, ""):
            self.uid = known.pw_uid if known else int(user)
            self.gid = known.pw_gid if known else self.uid
            self.name = known.pw_name if known else name_of(self.uid)
        self.listed, self.primary = known is not None, self.gid
        if group not in (None, ""):
            self.gid = self._group(group)
        if self.uid != os.getuid() and os.getuid() != 0:
            own = self._entry(os.getuid())
            raise TaskError(
                "executor_error",
                "user %s: the agent here runs as %s, and only root can run a task as somebody else; leave `user` out "
                "or start the agent as root" % (self.name, own.pw_name if own else os.getuid()),
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
        """Of its group in this machine's list; empty if it isn't there."""
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
    """Whom the SSH servers of this agent's jobs let in: sessions of jobs begin as its own user."""
    return "root" if os.getuid() == 0 else listed_user(os.getuid()) or str(os.getuid())


def listed_user(uid: int) -> str:
    """Its name in this host's list of users; empty: it isn't there, as in many containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def name_of(uid: int) -> str:
    """Of a user whom nobody has given a name."""
    return "dstack-%d" % uid


def named(wanted: Any) -> Tuple[Any, Any]:
    """The user and the group that a spec names; empty or None for none."""
    if not isinstance(wanted, dict):
        name, _, of_group = str("" if wanted is None else wanted).partition(":")
        return name, of_group
    user, group = wanted.get("username"), wanted.get("groupname")
    return wanted.get("uid") if user in (None, "") else user, wanted.get("gid") if group in (None, "") else group


def account_of(spec: Dict[str, Any], pool: Users, task: str, with_gpus: bool = False) -> TaskAccount:
    wanted = spec.get("user")
    chosen = any(part not in (None, "") for part in named(wanted))
    if chosen and not spec.get("user_permitted"):
        raise refused(wanted, "only admins of the project whose host this is may name one of the host's users")
    account = TaskAccount(wanted)
    if pool.isolation != OWN_USER:
        return account
    if chosen:
        check_chosen(account, wanted, pool, str(spec.get("host_user") or ""))
    else:
        account.held = pool.take(task)
        account.uid = account.gid = account.held.uid
        account.name = name_of(account.uid)
    account.confined, account.groups = True, [account.gid] + (device_groups() if with_gpus else [])
    return account


def check_chosen(account: TaskAccount, wanted: Any, pool: Users, host_user: str) -> None:
    """Refuses users by whom a task would come to more than what a person's account has on this machine."""
    if not LEAST <= account.uid <= MOST or account.uid in NOBODIES or account.primary == 0:
        raise refused(wanted, "plain processes can't be root or another of the system's users here")
    if account.uid in pool.ids:
        raise refused(wanted, "it is one of those that jobs get")
    if account.gid != account.primary:
        raise refused(wanted, "plain processes get no group but their user's own, %d" % account.primary)
    if not account.listed and account.group_name:
        raise refused(wanted, "this machine doesn't list it, and group %d is %s" % (account.gid, account.group_name))
    if account.is_named(host_user):
        raise refused(wanted, "the server logs in to this machine with that account")


def refused(wanted: Any, why: str) -> TaskError:
    text = ":".join(str(part) for part in named(wanted) if part not in (None, ""))
    return TaskError(
        "executor_error", "user %s: %s; leave `user` out, or use a host with a container engine" % (text, why)
    )


def device_groups(patterns: Iterable[str] = DEVICES) -> List[int]:
    """The groups that may use this machine's GPUs, where not everybody may."""
    found = set()
    for path in (path for pattern in patterns for path in glob.glob(pattern)):
        device = os.stat(path)
        if stat.S_ISCHR(device.st_mode) and device.st_mode & 0o066 == 0o060 and device.st_gid:
            found.add(device.st_gid)
    return sorted(found)


def reachable(path: str, account: TaskAccount) -> bool:
    """Can this account reach `path`? The agent's data folder may be private to the agent."""
    parent = os.path.dirname(path)
    while account.uid != 0 and parent != os.path.dirname(parent):
        found = os.stat(parent)
        shift = 6 if found.st_uid == account.uid else 3 if found.st_gid == account.gid else 0
        if not found.st_mode >> shift & 1:
            return False
        parent = os.path.dirname(parent)
    return True


def outside(task: str) -> str:
    """A folder for a task whose user can't reach the task's own folder. Only root makes folders there, so nobody can
    have made it before us. It is on disk, unlike many a /tmp, and its path is short, because socket paths must be."""
    return os.path.join(OUTSIDE, task)


def delete_outside(task: str) -> None:
    """Also of a task that an earlier agent started: there anybody may have made it, and root alone may delete it."""
    delete_tree(outside(task))
    if os.getuid() == 0:
        delete_tree(EARLIER + task)


def tidy() -> None:
    """Delete the folder of those folders, unless some task of this machine's agents has one."""
    with contextlib.suppress(OSError):
        os.rmdir(OUTSIDE)


def make_home(folder: TaskFolder, account: TaskAccount) -> Tuple[str, str]:
    """The task's home, and its folder for temporary files (empty: the machine's), which nobody else may enter."""
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
        account.held.owns([home, scratch])
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

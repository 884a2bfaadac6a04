"""A name for a task's user that the machine doesn't list.

The kernel needs only numbers, but ssh refuses to run without an entry in the list of users, and git, Java and Python's
getpwuid need one. So for the task and its sessions, lists with an entry are mounted over the machine's in a mount
namespace; the entry agrees with the task's environment. A user that the machine lists has another home there than in
the task, so it gets an entry, too.
"""

from __future__ import annotations

import os
from typing import Dict

from ..kernel import namespaces
from ..kernel.task_runtime import TaskError
from ..kernel.tasks import TaskFolder
from .accounts import TaskAccount

USERS, GROUPS = "/etc/passwd", "/etc/group"
CACHE = "/run/nscd/socket"  # a daemon that answers from the machine's lists
NOTHING = "/dev/null"  # mounted over the cache's socket, which libc then doesn't use


def bound_files_for(folder: TaskFolder, account: TaskAccount, home: str, shell: str) -> Dict[str, str]:
    """The files to mount for the task, `{place: file}`. None for the agent's own user, which the machine lists, or if
    the kernel doesn't let the agent mount."""
    if not account.foreign or namespaces.bind_over_problem():
        return {}
    entry = user_entry(account.name, account.uid, account.gid, home, shell)
    bound = {os.path.realpath(USERS): _write_list(folder, "users", with_entry(_text(USERS), entry))}
    if not account.group_name:
        group = "%s:x:%d:" % (account.name, account.gid)
        bound[os.path.realpath(GROUPS)] = _write_list(folder, "groups", with_entry(_text(GROUPS), group))
    if os.path.exists(CACHE):
        bound[CACHE] = NOTHING
    return bound


def user_entry(name: str, uid: int, gid: int, home: str, shell: str) -> str:
    for field, path in (("home", home), ("shell", shell)):
        if ":" in path or not path.isprintable():
            raise TaskError("executor_error", "%s %r: no path of a user can have this character" % (field, path))
    return "%s:x:%d:%d:%s:%s:%s" % (name, uid, gid, name, home, shell)  # git needs a full name, too


def with_entry(text: str, entry: str) -> str:
    """The list with this entry first, and without other entries of the same number."""
    number = entry.split(":")[2]
    rest = [line for line in text.split("\n") if line and line.split(":")[2:3] != [number]]
    return "".join(line + "\n" for line in [entry, *rest])


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _write_list(folder: TaskFolder, name: str, text: str) -> str:
    path = os.path.join(folder.path, name)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as out:
        out.write(text)
    os.chmod(path, 0o644)
    return path

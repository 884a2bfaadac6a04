"""The name of a task's user, where the machine's lists of users and groups don't have it.

The kernel needs no more than numbers, but ssh runs for nobody without an entry, and git, Java and Python's getpwuid ask
for one. So the task and its sessions see lists of their own in the places of the machine's, through a mount namespace,
with an entry that says the same as the task's environment. A user whom the machine does list has another home there
than in the task, and gets an entry, too.
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
NOTHING = "/dev/null"  # a cache that can't be connected to isn't asked


def lists_for(folder: TaskFolder, account: TaskAccount, home: str, shell: str) -> Dict[str, str]:
    """Which files the task is to see in the places of which. None if it is the agent's own user, whom the machine
    knows, or if the kernel lets us give it no view of its own."""
    if not account.foreign or namespaces.bind_over_problem():
        return {}
    entry = user_entry(account.name, account.uid, account.gid, home, shell)
    seen = {os.path.realpath(USERS): _written(folder, "users", with_entry(_text(USERS), entry))}
    if not account.group_name:
        group = "%s:x:%d:" % (account.name, account.gid)
        seen[os.path.realpath(GROUPS)] = _written(folder, "groups", with_entry(_text(GROUPS), group))
    if os.path.exists(CACHE):
        seen[CACHE] = NOTHING
    return seen


def user_entry(name: str, uid: int, gid: int, home: str, shell: str) -> str:
    for what, path in (("home", home), ("shell", shell)):
        if ":" in path or not path.isprintable():
            raise TaskError("executor_error", "%s %r: no path of a user can have this character" % (what, path))
    return "%s:x:%d:%d:%s:%s:%s" % (name, uid, gid, name, home, shell)  # git wants a whole name, too


def with_entry(text: str, entry: str) -> str:
    """The list with this entry first and no other one of the same number."""
    number = entry.split(":")[2]
    others = [line for line in text.split("\n") if line and line.split(":")[2:3] != [number]]
    return "".join(line + "\n" for line in [entry, *others])


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _written(folder: TaskFolder, name: str, text: str) -> str:
    path = os.path.join(folder.path, name)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as out:
        out.write(text)
    os.chmod(path, 0o644)
    return path

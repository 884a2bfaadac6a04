"""What the sessions of a plain process take on: its user and limits, its environment and its view of the files.

`process` writes it when the job runs and deletes it when the job ends; `session_command` reads it.
"""

from __future__ import annotations

import json
import os
import resource
from typing import Any, Dict, Optional

from ..kernel.tasks import TaskFolder, read_json, write_atomic
from .accounts import TaskAccount
from .name_service import USERS

FILE = "session.json"  # in the task's folder
PROCESSES_MOST = 16384


def admit(
    folder: TaskFolder, account: TaskAccount, environment: Dict[str, str], where: str, seen: Dict[str, str]
) -> None:
    """From now on there can be sessions of this plain process. `seen`: which files they see in the places of which."""
    rights = {"uid": account.uid, "gid": account.gid, "groups": account.groups, "confined": account.confined}
    entry = dict(rights, own_user=account.held is not None, environment=environment, where=where, seen=seen)
    write_atomic(os.path.join(folder.path, FILE), json.dumps(entry))


def refuse(folder: TaskFolder) -> None:
    """No session begins from now on. One that is about to become the job's user looks again when it has."""
    try:
        os.unlink(os.path.join(folder.path, FILE))
    except FileNotFoundError:
        return  # refused already


def of(folder: TaskFolder) -> Optional[Dict[str, Any]]:
    """None if there can be no session: the job hasn't begun, or it has ended."""
    return read_json(os.path.join(folder.path, FILE))


def seen_of(entry: Dict[str, Any]) -> Dict[str, str]:
    """Which files the job sees in the places of which. A supervisor of an earlier agent, which may still run, named at
    most a list of users."""
    if "seen" in entry:
        return dict(entry["seen"])
    return {os.path.realpath(USERS): entry["users"]} if entry.get("users") else {}


def take_on(entry: Dict[str, Any]) -> None:
    """The job's limits and rights, for good."""
    account = TaskAccount({"uid": entry["uid"], "gid": entry["gid"]})
    account.confined, account.groups = entry["confined"], entry["groups"]
    if account.foreign and os.isatty(0):
        os.fchown(0, account.uid, account.gid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if entry["own_user"]:
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES_MOST, PROCESSES_MOST))
    os.umask(0o022)
    account.become()

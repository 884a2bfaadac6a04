"""The record of what sessions of a plain process take over from it: user, limits, environment and mounted files.

The runtime writes it when the job runs and deletes it when the job ends; `session_command` reads it.
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
    folder: TaskFolder, account: TaskAccount, environment: Dict[str, str], working_dir: str, bound_files: Dict[str, str]
) -> None:
    """Allow sessions of this plain process. `bound_files`: the files to mount for them, `{place: file}`."""
    rights = {"uid": account.uid, "gid": account.gid, "groups": account.groups, "confined": account.confined}
    entry = dict(rights, own_user=account.held is not None, environment=environment)
    write_atomic(os.path.join(folder.path, FILE), json.dumps(dict(entry, where=working_dir, seen=bound_files)))


def refuse(folder: TaskFolder) -> None:
    """Allow no further sessions. One that is becoming the job's user checks again afterwards."""
    try:
        os.unlink(os.path.join(folder.path, FILE))
    except FileNotFoundError:
        return  # refused already


def of(folder: TaskFolder) -> Optional[Dict[str, Any]]:
    """The record; None if there can be no session, because the job hasn't begun or has ended."""
    return read_json(os.path.join(folder.path, FILE))


def bound_files_of(entry: Dict[str, Any]) -> Dict[str, str]:
    """The files mounted for the job, `{place: file}`. A supervisor of an earlier agent, which may still run, recorded
    at most a list of users."""
    if "seen" in entry:
        return dict(entry["seen"])
    return {os.path.realpath(USERS): entry["users"]} if entry.get("users") else {}


def take_on(entry: Dict[str, Any]) -> None:
    """Take on the job's limits and rights, irrevocably."""
    account = TaskAccount({"uid": entry["uid"], "gid": entry["gid"]})
    account.confined, account.groups = entry["confined"], entry["groups"]
    if os.isatty(0) and os.fstat(0).st_uid != account.uid and os.getuid() == 0:
        os.fchown(0, account.uid, account.gid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if entry["own_user"]:
        resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES_MOST, PROCESSES_MOST))
    os.umask(0o022)
    account.become()

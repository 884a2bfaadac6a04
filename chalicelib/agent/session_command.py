"""One session of a job: what sshd runs, as root, in place of what the client asked for. It takes on the job's rights
and then is the shell, the command or the SFTP server.

For a plain process it becomes the job's user and executes. For a container the engine executes, so that the session has
all of the container's limits, and this process passes bytes on (`container_session`).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from typing import Any, Dict, List, NoReturn, Optional

from . import fabric, namespaces, sftp
from .accounts import TaskAccount
from .cgroups import TaskGroup
from .name_service import USERS
from .tasks import FINAL, TaskFolder, read_json, read_text, write_atomic

PASSED_ON = ("TERM", "LANG", "COLORTERM", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
SFTP = "dstack-sftp"  # the command that stands for the SFTP server
CUT = signal.SIGPWR  # whose session this is may not be in the job any more: it ends with all that it began
FAILED = 255  # the exit status that ssh itself has for a failure that isn't the command's
PROCESSES_MOST = 16384


class NoSession(Exception):
    """The reason is for the client."""


def admit(
    folder: TaskFolder, account: TaskAccount, environment: Dict[str, str], where: str, seen: Dict[str, str]
) -> None:
    """From now on there can be sessions of this plain process. `seen`: which files they see in the places of which."""
    rights = {"uid": account.uid, "gid": account.gid, "groups": account.groups, "confined": account.confined}
    entry = dict(rights, own_user=account.held is not None, environment=environment, where=where, seen=seen)
    write_atomic(os.path.join(folder.path, "session.json"), json.dumps(entry))


def refuse(folder: TaskFolder) -> None:
    """No session begins from now on. One that is about to become the job's user looks again when it has."""
    try:
        os.unlink(os.path.join(folder.path, "session.json"))
    except FileNotFoundError:
        return  # refused already


def main(path: str, server: int) -> int:
    """`server`: the process of `logins`, which sees the machine as it is; sshd was given other lists of users."""
    folder = TaskFolder(os.path.dirname(os.path.dirname(path)), os.path.basename(path))
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    try:
        if os.getuid() == 0:
            namespaces.enter(server, ["mnt"])
        launch = folder.launch()
        state = folder.state().get("state")
        if state != "running":
            raise NoSession("the job %s" % ("has ended" if state in (FINAL, None) else "doesn't run yet"))
        if launch["runtime"] == "docker":
            from . import container_session

            return container_session.run(folder, launch, command, passed_on())
        return beside_process(folder, launch["spec"], command)
    except (NoSession, OSError, sftp.Malformed) as problem:
        print("dstack: %s" % problem, file=sys.stderr)
        return FAILED


def passed_on() -> Dict[str, str]:
    """What of the client's environment the session has."""
    said = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")}
    said.pop("LC_ALL", None)  # the server's own
    return said


# Plain processes ------------------------------------------------------------------------------------------------------


def beside_process(folder: TaskFolder, spec: Dict[str, Any], command: Optional[str]) -> int:
    entry = read_json(os.path.join(folder.path, "session.json"))
    if entry is None:
        raise NoSession("the job has ended")
    here = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    TaskGroup(folder.task).join()
    fabric.lift(spec)
    if spec.get("volumes"):  # they are where the supervisor is
        if not folder.supervised():
            raise NoSession("the job has ended")
        namespaces.enter(int(read_text(os.path.join(folder.path, "pid")) or 0), ["mnt"])
    if seen := seen_of(entry):
        namespaces.see_instead(seen)
    take_on(entry)
    if not os.access("session.json", os.F_OK, dir_fd=here):
        raise NoSession("the job has ended")
    os.close(here)
    os.chdir(entry["where"])
    if command == SFTP:
        sftp.serve(sftp.SftpServer(), 0, 1)
        return 0
    environment = dict(entry["environment"], **passed_on())
    shell = spec.get("shell") or shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"
    execute([shell] if command is None else [shell, "-c", command], environment)


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


def execute(argv: List[str], environment: Dict[str, str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # which Python has changed
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], argv, environment)

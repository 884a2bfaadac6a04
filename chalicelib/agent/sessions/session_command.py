"""The command that sshd runs, as root, for every session of a job. It takes on the job's rights and becomes the shell,
the command or the SFTP server that the client requested.

For a plain process it becomes the job's user and executes the command. For a container the engine executes the command,
so that the session has all of the container's limits, and this process passes bytes on (`container_session`).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Dict, List, NoReturn, Optional

from ..kernel import namespaces
from ..kernel.tasks import FINAL, TaskFolder, read_text
from ..runtimes import fabric, session_rights
from ..runtimes.cgroups import TaskGroup
from . import sftp
from .protocol import SFTP

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask

PASSED_ON = ("TERM", "LANG", "COLORTERM", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
FAILED = 255  # ssh's own exit status for a failure that isn't the command's


class NoSession(Exception):
    """The session can't begin. The message is for the client."""


def main(path: str, server: int) -> int:
    """`server`: the pid of `logins`, which has the machine's own mounts; sshd has other lists of users."""
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

            return container_session.run(folder, launch, command, passed_variables())
        return run_process_session(folder, launch["spec"], command)
    except (NoSession, OSError, sftp.Malformed) as problem:
        print("dstack: %s" % problem, file=sys.stderr)
        return FAILED


def passed_variables() -> Dict[str, str]:
    """The client's variables that the session gets."""
    variables = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")}
    variables.pop("LC_ALL", None)  # set by the server's configuration
    return variables


# Plain processes ------------------------------------------------------------------------------------------------------


def run_process_session(folder: TaskFolder, spec: LaunchedTask, command: Optional[str]) -> int:
    entry = session_rights.of(folder)
    if entry is None:
        raise NoSession("the job has ended")
    folder_fd = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    TaskGroup(folder.task).join()
    fabric.raise_limit(spec)
    if spec.get("volumes"):  # they are in the supervisor's mount namespace
        if not folder.supervised():
            raise NoSession("the job has ended")
        namespaces.enter(int(read_text(os.path.join(folder.path, "pid")) or 0), ["mnt"])
    if bound_files := session_rights.bound_files_of(entry):
        namespaces.bind_over(bound_files)
    session_rights.take_on(entry)
    if not os.access(session_rights.FILE, os.F_OK, dir_fd=folder_fd):
        raise NoSession("the job has ended")
    os.close(folder_fd)
    os.chdir(entry["where"])
    if command == SFTP:
        sftp.serve(sftp.SftpServer(), 0, 1)
        return 0
    environment = dict(entry["environment"], **passed_variables())
    shell = spec.get("shell") or shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"
    try:
        execute([shell] if command is None else [shell, "-c", command], environment)
    except FileNotFoundError:
        raise NoSession(
            "there is no %s here to run a session in; scp and sftp copy files, and `ssh -N -L` forwards ports" % shell
        ) from None


def execute(argv: List[str], environment: Dict[str, str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python has changed these
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], argv, environment)

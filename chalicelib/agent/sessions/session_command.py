"""One session of a job: what sshd runs, as root, in place of what the client asked for. It takes on the job's rights
and then is the shell, the command or the SFTP server.

For a plain process it becomes the job's user and executes. For a container the engine executes, so that the session has
all of the container's limits, and this process passes bytes on (`container_session`).
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import Any, Dict, List, NoReturn, Optional

from ..kernel import namespaces
from ..kernel.tasks import FINAL, TaskFolder, read_text
from ..runtimes import fabric, session_rights
from ..runtimes.cgroups import TaskGroup
from . import sftp
from .protocol import SFTP

PASSED_ON = ("TERM", "LANG", "COLORTERM", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
FAILED = 255  # the exit status that ssh itself has for a failure that isn't the command's


class NoSession(Exception):
    """The reason is for the client."""


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
    entry = session_rights.of(folder)
    if entry is None:
        raise NoSession("the job has ended")
    here = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    TaskGroup(folder.task).join()
    fabric.lift(spec)
    if spec.get("volumes"):  # they are where the supervisor is
        if not folder.supervised():
            raise NoSession("the job has ended")
        namespaces.enter(int(read_text(os.path.join(folder.path, "pid")) or 0), ["mnt"])
    if seen := session_rights.seen_of(entry):
        namespaces.bind_over(seen)
    session_rights.take_on(entry)
    if not os.access(session_rights.FILE, os.F_OK, dir_fd=here):
        raise NoSession("the job has ended")
    os.close(here)
    os.chdir(entry["where"])
    if command == SFTP:
        sftp.serve(sftp.SftpServer(), 0, 1)
        return 0
    environment = dict(entry["environment"], **passed_on())
    shell = spec.get("shell") or shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"
    execute([shell] if command is None else [shell, "-c", command], environment)


def execute(argv: List[str], environment: Dict[str, str]) -> NoReturn:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # which Python has changed
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], argv, environment)

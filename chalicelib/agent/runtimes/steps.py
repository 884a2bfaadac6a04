"""The command in which a job ended: the job's shell appends the number of each command to a file before it begins.

The task's spec has a name for each number. The job can write anything to the file, so other contents are ignored.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Dict

if TYPE_CHECKING:
    from ...contract.agent import Task
    from ..kernel.tasks import LaunchedTask

VARIABLE = "DSTACK_COMMAND_FILE"  # the shell removes it from its environment
PLACE = "dstack/command"  # below `/` in a container
MOST = 32  # bytes of the file's end that are read


def variable(spec: LaunchedTask, path: str) -> Dict[str, str]:
    return {VARIABLE: path} if spec.get("steps") else {}


def make(path: str, uid: int, gid: int) -> None:
    """Create the file at `path`, in a folder of the agent's."""
    if os.path.lexists(path):
        os.unlink(path)  # left by an attempt that didn't start
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if uid != os.getuid():
            os.fchown(file, uid, gid)
    finally:
        os.close(file)


def read(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size > MOST:
                os.lseek(file, -MOST, os.SEEK_END)
            return os.read(file, MOST).decode("ascii", "replace")
        finally:
            os.close(file)
    except OSError:
        return ""  # the job has replaced the file


def name(spec: Task, text: str) -> str:
    """The name of the command whose number comes last; empty if it has none."""
    names, lines = spec.get("steps") or [], text.split()
    last = lines[-1] if lines else ""
    number = int(last) if re.match(r"[0-9]{1,6}$", last) else 0
    return str(names[number - 1]) if 0 < number <= len(names) else ""

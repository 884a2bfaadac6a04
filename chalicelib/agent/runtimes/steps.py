"""In which of its commands a job ended: its shell adds the number of each to a file, before it begins.

The task's spec has a name for each number. The job may write to the file what it likes, so anything that isn't one of
these numbers says nothing.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict

VARIABLE = "DSTACK_COMMAND_FILE"  # the shell takes it out of its environment
PLACE = "dstack/command"  # below `/` in a container
MOST = 32  # bytes of the file's end that are read


def variable(spec: Dict[str, Any], path: str) -> Dict[str, str]:
    return {VARIABLE: path} if spec.get("steps") else {}


def make(path: str, uid: int, gid: int) -> None:
    """`path` is in a folder of the agent's."""
    if os.path.lexists(path):
        os.unlink(path)  # of an attempt that didn't start
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
        return ""  # the job has put something else in its place


def name(spec: Dict[str, Any], text: str) -> str:
    """What to call the command whose number comes last; empty if nobody knows."""
    names, lines = spec.get("steps") or [], text.split()
    last = lines[-1] if lines else ""
    number = int(last) if re.match(r"[0-9]{1,6}$", last) else 0
    return str(names[number - 1]) if 0 < number <= len(names) else ""

"""A job's keys on its host: users come through the host's own SSH server, which lets them reach their jobs' ports for
sessions and nothing else.

Each key has one line, because sshd obeys the first line that matches. The line lists the ports of all jobs that the key
is for, and its comment names those jobs, so each can be removed by itself; the line goes with the last one.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import hashlib
import os
import pwd
import re
import stat
import time
from typing import Callable, Dict, Iterator, List, Optional, Tuple

LOCK_TRIES, LOCK_PAUSE = 50, 0.1  # seconds
Pause = Callable[[float], None]
EntryOf = Callable[[str], "pwd.struct_passwd"]  # by name; KeyError
MARK = "dstack-jobs"
OURS = "restrict,port-forwarding,"  # how each line of ours begins
NO_LISTENING = 'permitlisten="localhost:1"'  # which is as little as can be said: else `-R` might take any port here
KEY = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+$")
JOB = re.compile(r"([A-Za-z0-9._-]+)=(\d{1,5})")


def allow(
    user: str, keys: List[str], task: str, port: int, entry_of: EntryOf = pwd.getpwnam, pause: Pause = time.sleep
) -> None:
    """Lets these keys log in as `user` to the task, for this port only, and no other keys. Raises OSError; KeyError if
    there is no such user."""
    with _changing(entry_of(user), pause, True) as lines:
        known = _jobs(lines)
        for jobs in known.values():
            jobs.pop(task, None)
        for key in filter(None, (bare(key) for key in keys)):
            known.setdefault(key, {})[task] = port
        _put(lines, known)


def withdraw(user: str, task: str, entry_of: EntryOf = pwd.getpwnam, pause: Pause = time.sleep) -> None:
    """Takes a job's keys out again, whoever locks them: none may stay."""
    try:
        entry = entry_of(user)
    except KeyError:
        return  # and with the user everything that was let in
    if not os.path.isdir(os.path.join(entry.pw_dir, ".ssh")):
        return  # and with it the keys
    with _changing(entry, pause, False) as lines:
        known = _jobs(lines)
        for jobs in known.values():
            jobs.pop(task, None)
        _put(lines, known)


def bare(key: str) -> str:
    """The type and the data of a public key; empty if it isn't one."""
    words = key.split()
    return " ".join(words[:2]) if KEY.match(" ".join(words[:2])) else ""


def fingerprint(key: str) -> str:
    """Of a bare key, as sshd writes it; empty for data that are none, with which nobody logs in."""
    try:
        digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    except ValueError:
        return ""
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def _jobs(lines: List[str]) -> Dict[str, Dict[str, int]]:
    """Which jobs each key is for: task and port."""
    found: Dict[str, Dict[str, int]] = {}
    for line in lines:
        if _is_ours(line):
            before, _, jobs = line.partition(" %s " % MARK)
            key = " ".join(before.split()[-2:])
            found[key] = {task: int(port) for task, port in JOB.findall(jobs)}
    return found


def _is_ours(line: str) -> bool:
    return line.startswith(OURS) and " %s " % MARK in line


def _put(lines: List[str], known: Dict[str, Dict[str, int]]) -> None:
    """Ours go last: a key that its owner may use for more stays as it is."""
    lines[:] = [line for line in lines if not _is_ours(line)]
    lines += [_line(key, jobs) for key, jobs in known.items() if jobs]


def _line(key: str, jobs: Dict[str, int]) -> str:
    ports = sorted(set(jobs.values()))
    opens = ",".join('permitopen="%s:%d"' % (host, port) for port in ports for host in ("localhost", "127.0.0.1"))
    named = " ".join("%s=%d" % item for item in sorted(jobs.items()))
    refused = 'command="echo This key only leads to the sessions of jobs. >&2; exit 1"'
    return "%s%s,%s,%s %s %s %s" % (OURS, NO_LISTENING, opens, refused, key, MARK, named)


@contextlib.contextmanager
def _changing(entry: "pwd.struct_passwd", pause: Pause, alone: bool) -> Iterator[List[str]]:
    """The lines of the user's authorized_keys, written back if they change; one process at a time. The folder is the
    user's, so its links aren't followed, and its lock is one that the user may keep for ever: we wait for some seconds,
    and go on if it needn't be `alone`."""
    path = os.path.join(entry.pw_dir, ".ssh")
    folder = _folder(entry, path)
    try:
        if not _locked(folder, pause) and alone:
            seconds = round(LOCK_TRIES * LOCK_PAUSE)
            raise BlockingIOError(errno.EAGAIN, "another process has locked %s for %d s" % (path, seconds))
        text, mode = _read(folder)
        lines = (text or "").split("\n")  # nothing else ends a line: its owner's are kept as they are
        if not lines[-1]:
            lines.pop()
        before = list(lines)
        yield lines
        after = "".join(line + "\n" for line in lines)
        if not after and text:
            os.unlink("authorized_keys", dir_fd=folder)  # it had nothing but ours
        elif lines != before:
            _write(folder, after, entry, mode)
    finally:
        os.close(folder)


def _locked(folder: int, pause: Pause) -> bool:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pause(LOCK_PAUSE)
    return False


def _folder(entry: "pwd.struct_passwd", path: str) -> int:
    if not os.path.isdir(path):
        os.mkdir(path, 0o700)
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _read(folder: int) -> Tuple[Optional[str], int]:
    try:
        file = os.open("authorized_keys", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None, 0o600
    with os.fdopen(file, "rb") as source:
        mode = os.fstat(source.fileno()).st_mode
        found = source.read() if stat.S_ISREG(mode) else b""  # a pipe may have no end
        return found.decode("utf-8", "surrogateescape"), stat.S_IMODE(mode)


def _write(folder: int, text: str, entry: "pwd.struct_passwd", mode: int) -> None:
    name = "authorized_keys.dstack"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with os.fdopen(file, "wb") as out:
        out.write(text.encode("utf-8", "surrogateescape"))
        os.fchown(out.fileno(), entry.pw_uid, entry.pw_gid)
        os.fchmod(out.fileno(), mode)
        out.flush()
        os.fsync(out.fileno())  # a crash must not leave a host whose owner can't log in
    os.rename(name, "authorized_keys", src_dir_fd=folder, dst_dir_fd=folder)

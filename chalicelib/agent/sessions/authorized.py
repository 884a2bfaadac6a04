"""A job's public keys on its host: users come through the host's own SSH server, which lets them reach the ports of
their jobs' SSH servers and nothing else.

Each key has one line, because sshd obeys the first line that matches. The line lists the ports of all jobs of the key,
and its comment names those jobs, so that each can be removed by itself. The line is deleted with the last job.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
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
PREFIX = "restrict,port-forwarding,"  # of each line for jobs
NO_LISTENING = 'permitlisten="localhost:1"'  # the least that can be permitted; without it, `-R` could take any port
KEY = re.compile(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+$")
JOB = re.compile(r"([A-Za-z0-9._-]+)=(\d{1,5})")


def allow(
    user: str, keys: List[str], task: str, port: int, entry_of: EntryOf = pwd.getpwnam, pause: Pause = time.sleep
) -> None:
    """Let these keys, and no others, log in as `user` for this port of the task. Raises OSError; KeyError if there is
    no such user."""
    with _editing(entry_of(user), pause, True) as lines:
        jobs_of = _jobs(lines)
        for jobs in jobs_of.values():
            jobs.pop(task, None)
        for key in filter(None, (plain_key(key) for key in keys)):
            jobs_of.setdefault(key, {})[task] = port
        _replace(lines, jobs_of)


def withdraw(user: str, task: str, entry_of: EntryOf = pwd.getpwnam, pause: Pause = time.sleep) -> None:
    """Remove a job's keys, even if the user holds the lock, because none may stay."""
    try:
        entry = entry_of(user)
    except KeyError:
        return  # the user is deleted, and its keys with it
    if not os.path.isdir(os.path.join(entry.pw_dir, ".ssh")):
        return  # the folder is deleted, and the keys with it
    with _editing(entry, pause, False) as lines:
        jobs_of = _jobs(lines)
        for jobs in jobs_of.values():
            jobs.pop(task, None)
        _replace(lines, jobs_of)


def plain_key(key: str) -> str:
    """The type and the data of a public key; empty if it isn't one."""
    plain = " ".join(key.split()[:2])
    return plain if KEY.match(plain) else ""


def fingerprint(key: str) -> str:
    """The fingerprint of a plain key, in sshd's form; empty for malformed data, with which no login succeeds."""
    try:
        import hashlib  # here, because it takes time

        digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    except ValueError:
        return ""
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def _jobs(lines: List[str]) -> Dict[str, Dict[str, int]]:
    """The jobs of each key: port by task."""
    found: Dict[str, Dict[str, int]] = {}
    for line in lines:
        if _is_job_line(line):
            before, _, jobs = line.partition(" %s " % MARK)
            key = " ".join(before.split()[-2:])
            found[key] = {task: int(port) for task, port in JOB.findall(jobs)}
    return found


def _is_job_line(line: str) -> bool:
    return line.startswith(PREFIX) and " %s " % MARK in line


def _replace(lines: List[str], jobs_of: Dict[str, Dict[str, int]]) -> None:
    """Replace the lines for jobs. They come last, so that an unrestricted line of the same key takes precedence."""
    lines[:] = [line for line in lines if not _is_job_line(line)]
    lines += [_line(key, jobs) for key, jobs in jobs_of.items() if jobs]


def _line(key: str, jobs: Dict[str, int]) -> str:
    ports = sorted(set(jobs.values()))
    opens = ",".join('permitopen="%s:%d"' % (host, port) for port in ports for host in ("localhost", "127.0.0.1"))
    named = " ".join("%s=%d" % item for item in sorted(jobs.items()))
    refused = 'command="echo This key only leads to the sessions of jobs. >&2; exit 1"'
    return "%s%s,%s,%s %s %s %s" % (PREFIX, NO_LISTENING, opens, refused, key, MARK, named)


@contextlib.contextmanager
def _editing(entry: "pwd.struct_passwd", pause: Pause, exclusive: bool) -> Iterator[List[str]]:
    """The lines of the user's authorized_keys, written back if they change. The folder is the user's, so its links
    aren't followed, and the user may hold its lock for ever: after some seconds, this goes on without the lock unless
    `exclusive`."""
    path = os.path.join(entry.pw_dir, ".ssh")
    folder = _folder(entry, path)
    try:
        if not _try_lock(folder, pause) and exclusive:
            seconds = round(LOCK_TRIES * LOCK_PAUSE)
            raise BlockingIOError(errno.EAGAIN, "another process has locked %s for %d s" % (path, seconds))
        text, mode = _read(folder)
        lines = (text or "").split("\n")  # not splitlines, which would change its owner's lines
        if not lines[-1]:
            lines.pop()
        before = list(lines)
        yield lines
        after = "".join(line + "\n" for line in lines)
        if not after and text:
            os.unlink("authorized_keys", dir_fd=folder)  # it had only lines for jobs
        elif lines != before:
            _write(folder, after, entry, mode)
    finally:
        os.close(folder)


def _try_lock(folder: int, pause: Pause) -> bool:
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

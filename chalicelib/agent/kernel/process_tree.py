"""A task's processes, through /proc: finding them, measuring their usage, ending them all.

A supervisor is the "subreaper" of its descendants: a process that daemonises, changes its session or loses its parent
stays below the supervisor, so none escapes. On systems without subreapers, a mark in the environment identifies them.
"""

from __future__ import annotations

import collections
import ctypes
import os
import signal
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
MARK = "DSTACK_AGENT_TASK"
TICK_MICROS = 1_000_000 // os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def become_subreaper() -> bool:
    return prctl(PR_SET_CHILD_SUBREAPER)  # without it, rely on the mark in the environment


def prctl(option: int) -> bool:
    """Switch on an attribute of this process; False if the system doesn't have it."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False  # not Linux


def read_stat(pid: int) -> Optional[List[str]]:
    """The fields of /proc/PID/stat from the state on (field 3 of proc(5) is index 0); None if the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return file.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def boot() -> str:
    """An id of the machine's current boot; within a container, of the container's start."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            kernel = file.read().strip()
    except OSError:
        kernel = ""  # not Linux
    first = read_stat(1)
    return "%s-%s" % (kernel, first[19] if first else "")


def all_pids() -> Iterable[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def descendants(root: int) -> List[int]:
    """All processes below `root`, parents before children, without zombies."""
    children: Dict[int, List[int]] = {}
    dead = set()
    for pid in all_pids():
        stat = read_stat(pid)
        if stat is None:
            continue
        children.setdefault(int(stat[1]), []).append(pid)
        if stat[0] in "ZX":
            dead.add(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return [pid for pid in found if pid not in dead]


def below(root: int) -> Iterator[int]:
    """Iterate over the processes below `root`, including zombies; without reading every process of the machine, if the
    kernel lists children. A process whose siblings end at this moment may be missed."""
    if not os.path.exists("/proc/%d/task/%d/children" % (os.getpid(), os.getpid())):
        yield from descendants(root)
        return
    pending = collections.deque([root])
    while pending:
        found = _children(pending.popleft())
        yield from found
        pending.extend(found)


def _children(pid: int) -> List[int]:
    found: List[int] = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as file:
                found += map(int, file.read().split())
    except OSError:
        return found  # gone
    return found


def marked(task: str) -> List[int]:
    mark = ("%s=%s" % (MARK, task)).encode()
    found = []
    for pid in all_pids():
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue  # gone, or another user's, which the agent may not end
    return found


def of_user(uid: int) -> List[int]:
    """The processes of which any user id is this one, without zombies."""
    found = []
    for pid in all_pids():
        try:
            with open("/proc/%d/status" % pid, "rb") as file:
                fields = dict(line.split(b":", 1) for line in file if line.startswith((b"Uid:", b"State:")))
        except OSError:
            continue  # gone
        if str(uid).encode() in fields[b"Uid"].split() and fields[b"State"].split()[0] not in (b"Z", b"X"):
            found.append(pid)
    return found


def usage(root: int) -> Tuple[int, int]:
    """CPU microseconds used so far by all processes below `root`, including dead ones, and resident bytes now."""
    stat = read_stat(root)
    ticks = int(stat[13]) + int(stat[14]) if stat else 0  # of the children that `root` reaped
    resident = 0
    for pid in descendants(root):
        stat = read_stat(pid)
        if stat:
            ticks += sum(int(value) for value in stat[11:15])
            resident += int(stat[21]) * PAGE
    return ticks * TICK_MICROS, resident


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # gone already, or another user's by now (sudo), which only root can end


def stopped(root: int) -> List[int]:
    """Stop `root` and all processes below it, so that they can't start others; returns their pids."""
    found: List[int] = []
    while True:
        fresh = [pid for pid in [root, *descendants(root)] if pid not in found]
        if not fresh:
            return found
        send(fresh, signal.SIGSTOP)
        found += fresh


def polite_signal(pid: int) -> Optional[int]:
    """The signal to end a process with: SIGTERM if it handles that, else SIGINT, as Ctrl-C sends (Python turns it into
    KeyboardInterrupt, an interactive shell abandons its list), else SIGTERM."""
    masks = {}
    try:
        with open("/proc/%d/status" % pid) as file:
            for line in file:
                if line.startswith(("SigCgt", "SigIgn")):
                    masks[line[:6]] = int(line.split()[1], 16)
    except OSError:
        return None
    if masks.get("SigCgt", 0) >> (signal.SIGTERM - 1) & 1:
        return int(signal.SIGTERM)
    if masks.get("SigIgn", 0) >> (signal.SIGINT - 1) & 1:
        return int(signal.SIGTERM)
    return int(signal.SIGINT)


def end_politely(pids: Iterable[int]) -> None:
    """Send each process its `polite_signal`; but descendants of a process that handles SIGTERM get SIGTERM, because a
    shell whose child dies of SIGINT gives up before its own trap runs."""
    signals = {pid: polite_signal(pid) for pid in pids}
    heirs = {below for pid, number in signals.items() if number == signal.SIGTERM for below in descendants(pid)}
    for pid, number in signals.items():
        if number is not None:
            send([pid], signal.SIGTERM if pid in heirs else number)

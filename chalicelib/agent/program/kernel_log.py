"""Errors of NVIDIA cards in the kernel's log (Xid), by card, with their times.

`/dev/kmsg` has the log since the machine was started, with times since then, so no clock needs to be right. If only
root may read it, `dmesg` is run instead, which some machines allow other users.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

KMSG = "dev/kmsg"
DMESG = ["dmesg"]
RECORD = 8192  # bytes: the longest that the kernel returns at once
FELL_OFF = 79  # the Xid of a card that has fallen off the bus

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]+:[0-9a-fA-F:.]+)\): (\d+)(?:, (.*))?")
_FALLEN = re.compile(r"NVRM: GPU ([0-9a-fA-F:.]+): (GPU has fallen off the bus.*)")
_PROCESS = re.compile(r"^(?:(?:pid|name)=(?:'[^']*'|[^,]*),\s*)+")  # the process that met the error
_STAMPED = re.compile(r"\[\s*(\d+)\.(\d{6})\]\s?(.*)")


class Xid(NamedTuple):
    at: float  # seconds since the machine was started
    card: str  # as `address` writes it
    number: int
    text: str


def address(text: str) -> str:
    """A card's PCI address in the form `0000:5f:00`; some sources write a longer domain or none, some a function."""
    parts = text.lower().split(".")[0].split(":")
    domain = parts[0] if len(parts) > 2 else "0"
    return ":".join([domain[-4:].zfill(4), *parts[-2:]])


def xid_of(at: float, line: str) -> Optional[Xid]:
    found = _XID.search(line)
    if found:
        return Xid(at, address(found.group(1)), int(found.group(2)), _PROCESS.sub("", found.group(3) or "").strip())
    lost = _FALLEN.search(line)
    return Xid(at, address(lost.group(1)), FELL_OFF, lost.group(2)) if lost else None


class KernelLog:
    def __init__(self, run: Callable[[List[str]], Tuple[int, str]], root: str = "/") -> None:
        self._run, self._path = run, os.path.join(root, KMSG)
        self._fd: Optional[int] = None
        self._latest = -1.0  # the time of the last line that `dmesg` printed

    def new_errors(self) -> List[Xid]:
        """The Xid errors logged since the last call; on the first call, since the machine was started."""
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:  # only root may read it
                return self._of_dmesg()
        return [xid for at, text in self._records(self._fd) for xid in [xid_of(at, text)] if xid]

    @staticmethod
    def _records(fd: int) -> List[Tuple[float, str]]:
        """Time and text of records such as `6,1234,171167620236,-;NVRM: …`, without their lines of details."""
        data = b""
        while True:
            try:
                part = os.read(fd, RECORD)
            except BrokenPipeError:  # the next record was overwritten meanwhile: go on with the oldest that is there
                continue
            except OSError:  # there is no further record yet
                break
            if not part:
                break
            data += part
        found = []
        for line in data.decode("utf-8", "replace").split("\n"):
            head, _, text = line.partition(";")
            fields = head.split(",")
            if len(fields) >= 3 and fields[2].isdigit():
                found.append((int(fields[2]) / 1e6, text))
        return found

    def _of_dmesg(self) -> List[Xid]:
        status, text = self._run(DMESG)
        stamped = [match for match in map(_STAMPED.match, text.split("\n")) if match] if status == 0 else []
        lines = [(int(m.group(1)) + int(m.group(2)) / 1e6, m.group(3)) for m in stamped]
        fresh = [(at, line) for at, line in lines if at > self._latest]
        self._latest = max((at for at, _ in lines), default=self._latest)
        return [xid for at, line in fresh for xid in [xid_of(at, line)] if xid]


STANDS = {"failure": 86400.0, "warning": 3600.0}  # seconds that an error counts, unless the card recovers before
PROGRAMS = frozenset({13, 31, 43, 45, 68, 69})  # errors of programs, not of the card
BROKEN = frozenset({48, 62, 64, FELL_OFF, 95, 119, 120, 140})  # until it is reset, the card is wrong or dead
RECOVERY = 154  # the driver's recommendation of how to recover the card


class CardErrors:
    """The troubles that follow from the Xid errors so far, by card."""

    def __init__(self) -> None:
        self._xids: Dict[Tuple[str, int], Xid] = {}  # the latest of each card and number
        self._recovered_at: Dict[str, float] = {}  # when a card's driver last reported that no recovery is needed

    def add(self, xids: List[Xid]) -> None:
        for xid in xids:
            if xid.number in PROGRAMS:
                continue
            if xid.number == RECOVERY and _needed(xid.text) == "None":
                self.recovered(xid.card, xid.at)
            self._xids[xid.card, xid.number] = xid

    def recovered(self, card: str, at: float) -> None:
        """Note that the driver reports no need of recovery, which there would be after an error that breaks a card."""
        self._recovered_at[card] = at

    def troubles(self, now: float) -> List[Tuple[str, str]]:
        """(status, message) of the errors that still count. `now`: seconds since the machine was started."""
        found = []
        for (card, number), xid in sorted(self._xids.items()):
            if number == RECOVERY:
                needed = _needed(xid.text)
                if needed == "None":
                    continue
                status, text = "failure", "its driver says that it needs: %s" % (needed or xid.text)
            else:
                status = "failure" if number in BROKEN else "warning"
                text = xid.text or "no details"
            if status == "failure" and self._recovered_at.get(card, -1.0) >= xid.at:
                status = "warning"
            if now - xid.at < STANDS[status]:
                found.append((status, "GPU %s: Xid %d, %s" % (card, number, text[:120])))
        return found


def _needed(text: str) -> str:
    """The action in `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)`."""
    found = re.search(r" to \S+ \(([^)]*)\)", text)
    return found.group(1) if found else ""

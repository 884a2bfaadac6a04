"""What is wrong with this machine: its GPUs, its disks, its container engine. Asked now and then by a thread of its
own, because tools can be slow.

A *trouble* is a status and a message. A `failure` takes the machine out of placement until it is over, a `warning` is
only shown. Messages contain no figures that change by themselves, because each change is reported at once. What may be
wrong for a moment on any busy machine (a tool or an engine doesn't answer) counts when it is found twice in a row.
"""

from __future__ import annotations

import functools
import os
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..kernel.lazy import LazyModule
from . import gpus
from .inventory import Runner

if TYPE_CHECKING:
    from . import kernel_log
    from .kernel_log import CardErrors, KernelLog
else:
    kernel_log = LazyModule(".program.kernel_log")

MIB = 1 << 20
TOOLS_EVERY = 120.0  # seconds between two rounds of the vendors' tools, which take CPU time
EASED = 1.25  # times a threshold must be free again, so that a disk at the threshold doesn't come and go

SMI = ["nvidia-smi", "--format=csv,noheader,nounits"]
CARD = ("index", "pci.bus_id", "uuid")
# One field that a driver doesn't know fails the whole call, so what isn't known everywhere is asked for in groups.
GROUPS = (
    ("ecc.errors.uncorrected.volatile.total",),
    ("remapped_rows.pending", "remapped_rows.failure"),
    ("gpu_recovery_action",),
)
AMD_ERRORS = ["amd-smi", "metric", "--ecc", "--json"]
INTEL_ERRORS = ["hl-smi", "-Q", "index,ecc.errors.uncorrected.volatile.total", "-f", "csv,noheader,nounits"]
NO_TOOL, NO_ANSWER = 127, 126  # as `run_tool` says it

_LOST = re.compile(r"^Unable to determine the device handle for (?:gpu|GPU)\s*([0-9A-Fa-f:.]+)", re.MULTILINE)


class FoundTrouble(NamedTuple):
    status: str  # failure or warning
    message: str
    sure: bool = True  # False: it counts when it is found again


Troubles = List[FoundTrouble]


def failure(text: str, *values: Any) -> FoundTrouble:
    return FoundTrouble("failure", text % values)


# --- disks ------------------------------------------------------------------------------------------------------------


def disk(path: str, what: str, before: str, statvfs: Callable[[str], Any] = os.statvfs) -> Troubles:
    """Is it full, or nearly? `before`: the status that it had."""
    try:
        found = statvfs(path)
    except OSError:
        return []  # there is no such folder
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    full, low = min(256 * MIB, size // 20), min(1024 * MIB, size // 10)
    if free < full * (EASED if before == "failure" else 1):
        return [failure("the disk under %s (%s) is full", path, what)]
    if free < low * (EASED if before else 1):
        return [FoundTrouble("warning", "the disk under %s (%s) is nearly full" % (path, what))]
    return []


def failing(tool: str, status: int) -> Troubles:
    """A tool that ends with an error, though the machine has its vendor's GPUs; one that isn't there proves nothing."""
    said = "doesn't answer" if status == NO_ANSWER else "fails with exit status %d" % status
    return [] if status == NO_TOOL else [FoundTrouble("failure", "%s %s" % (tool, said), sure=False)]


# --- GPUs -------------------------------------------------------------------------------------------------------------


class Nvidia:
    def __init__(self, run: Runner, cards: CardErrors, log: KernelLog) -> None:
        self._run, self._cards, self._log = run, cards, log
        self._groups: Optional[Tuple[Tuple[str, ...], ...]] = None  # those that this driver knows
        self._seen: Dict[str, str] = {}  # uuid → index

    def look(self, now: float) -> Troubles:
        """`now`: seconds since the machine was started."""
        status, text, fields = self._ask()
        if status and not _LOST.search(text):
            return failing("nvidia-smi", status)
        lost = [name.rstrip(".:") for name in _LOST.findall(text)]
        found = [failure("GPU %s: its driver can't reach it any more", name) for name in lost]
        cards = [row for row in gpus.rows(text, len(fields)) if row[2].startswith("GPU-")]
        rows = [{name: row[at] for at, name in enumerate(fields)} for row in cards]
        for row in rows:
            found += self._of_card(row, now)
        here = {row["uuid"]: row["index"] for row in rows}
        if not lost:
            gone = [index for uuid, index in self._seen.items() if uuid not in here]
            found += [failure("GPU %s: nvidia-smi doesn't list it any more", index) for index in gone]
        self._seen.update(here)
        return found

    def _ask(self) -> Tuple[int, str, Tuple[str, ...]]:
        groups = GROUPS if self._groups is None else self._groups
        status, text, fields = self._query(groups)
        if status and status != NO_TOOL and self._groups is None:
            status, text, fields = self._query(())
            if status == 0:  # some group isn't known
                self._groups = tuple(group for group in GROUPS if self._query((group,))[0] == 0)
                return self._query(self._groups)
        elif status == 0:
            self._groups = groups
        return status, text, fields

    def _query(self, groups: Sequence[Tuple[str, ...]]) -> Tuple[int, str, Tuple[str, ...]]:
        fields = (*CARD, *(field for group in groups for field in group))
        status, text = self._run([SMI[0], "--query-gpu=" + ",".join(fields), SMI[1]])
        return status, text, fields

    def _of_card(self, row: Dict[str, str], now: float) -> Troubles:
        name = "GPU %s" % row["index"]
        if any("requires reset" in value for value in row.values()):
            return [failure("%s: it requires a reset", name)]
        found = []
        if gpus.count(row.get("ecc.errors.uncorrected.volatile.total")):
            found.append(failure("%s: uncorrected memory errors since its driver was loaded", name))
        if row.get("remapped_rows.failure") == "Yes":
            found.append(failure("%s: broken memory that can't be remapped", name))
        if row.get("remapped_rows.pending") == "Yes":
            found.append(FoundTrouble("warning", "%s: memory waits to be remapped by a reset" % name))
        action = row.get("gpu_recovery_action", "")
        if action == "None":
            self._cards.recovered(kernel_log.address(row["pci.bus_id"]), now)
        elif gpus.known(action):
            found.append(failure("%s: its driver says that it needs: %s", name, action))
        return found

    def logged(self, now: float) -> Troubles:
        self._cards.take(self._log.news())
        return [FoundTrouble(status, message) for status, message in self._cards.standing(now)]


def amd(run: Runner) -> Troubles:
    """The uncorrectable errors that RAS has counted since the driver was loaded."""
    status, text = run(AMD_ERRORS)
    if status:
        return failing("amd-smi", status)
    cards = gpus.load(text)
    cards = cards.get("gpu_data") if isinstance(cards, dict) else cards
    found = []
    for card in cards if isinstance(cards, list) else ():
        errors = card.get("ecc") if isinstance(card, dict) else None
        count = errors.get("total_uncorrectable_count") if isinstance(errors, dict) else None
        if gpus.count(count.get("value") if isinstance(count, dict) else count):
            found.append(failure("GPU %s: uncorrectable errors since its driver was loaded", card.get("gpu", "?")))
    return found


def intel(run: Runner) -> Troubles:
    status, text = run(INTEL_ERRORS)
    if status:
        return failing("hl-smi", status)
    bad = [index for index, count in gpus.rows(text, 2) if gpus.count(count)]
    return [failure("GPU %s: uncorrected memory errors since its driver was loaded", index) for index in bad]


# --- the machine ------------------------------------------------------------------------------------------------------


class HealthChecks:
    """One machine's health. Not for two threads at a time."""

    def __init__(
        self,
        folders: Callable[[], Dict[str, str]],
        engines: Sequence[Callable[[], str]],
        run: Runner,
        root: str = "/",
        clock: Callable[[], float] = time.monotonic,
        statvfs: Callable[[str], Any] = os.statvfs,
    ) -> None:
        """`folders`: each with what is kept there; `engines`: why each can't be used, or nothing."""
        self._folders, self._engines, self._run, self._root = folders, engines, run, root
        self._clock, self._statvfs = clock, statvfs
        self._of_tools: Troubles = []
        self._tools_at = float("-inf")
        self._disks: Dict[str, str] = {}  # folder → the status it had
        self._unsure: Set[FoundTrouble] = set()

    @functools.cached_property
    def _nvidia(self) -> Nvidia:
        return Nvidia(self._run, kernel_log.CardErrors(), kernel_log.KernelLog(self._run, self._root))

    def look(self, vendors: Set[str]) -> List[Tuple[str, str]]:
        """(status, message) of all that is wrong now, failures first. `vendors`: of the GPUs that the machine has."""
        now = self._clock()
        found = [*self._of_disks(), *self._of_engines()]
        if now >= self._tools_at + TOOLS_EVERY or any(not trouble.sure for trouble in self._of_tools):
            self._of_tools, self._tools_at = self._ask_tools(vendors, now), now
        found += self._of_tools
        if "nvidia" in vendors:
            found += self._nvidia.logged(now)
        unsure = {trouble for trouble in found if not trouble.sure}
        counting = [trouble for trouble in found if trouble.sure or trouble in self._unsure]
        self._unsure = unsure
        return list(dict.fromkeys((each.status, each.message) for each in sorted(counting)))

    def _of_disks(self) -> Troubles:
        found, disks = [], {}
        for path, what in self._folders().items():
            here = disk(path, what, self._disks.get(path, ""), self._statvfs)
            disks[path] = here[0].status if here else ""
            found += here
        self._disks = disks
        return found

    def _of_engines(self) -> Troubles:
        problems = [problem() for problem in self._engines]
        return [FoundTrouble("failure", problem, sure=False) for problem in problems if problem]

    def _ask_tools(self, vendors: Set[str], now: float) -> Troubles:
        found: Troubles = []
        if "nvidia" in vendors:
            found += self._nvidia.look(now)
        if "amd" in vendors:
            found += amd(self._run)
        if "intel" in vendors:
            found += intel(self._run)
        return found

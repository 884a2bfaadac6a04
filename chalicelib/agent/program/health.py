"""Health checks of this machine's GPUs, disks and container engine. They run in a thread of their own, because tools
can be slow.

A *trouble* is a status and a message. A `failure` takes the machine out of placement while it lasts, a `warning` is
only shown. Messages contain no numbers that change by themselves, because each change is reported at once. A trouble
that any busy machine may have for a moment (a tool or an engine doesn't answer) counts when it is found twice in a row.
"""

from __future__ import annotations

import functools
import os
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..kernel.lazy import LazyModule
from . import gpu_tools
from .inventory import Runner

if TYPE_CHECKING:
    from . import kernel_log
    from .kernel_log import CardErrors, KernelLog
else:
    kernel_log = LazyModule(".program.kernel_log")

MIB = 1 << 20
TOOLS_EVERY = 120.0  # seconds between two runs of the vendors' tools, which take CPU time
HYSTERESIS = 1.25  # times a threshold must be free again, so that a disk at the threshold doesn't flap

SMI = ["nvidia-smi", "--format=csv,noheader,nounits"]
CARD = ("index", "pci.bus_id", "uuid")
# A field that the driver doesn't know fails the whole query, so newer fields are queried in groups.
GROUPS = (
    ("ecc.errors.uncorrected.volatile.total",),
    ("remapped_rows.pending", "remapped_rows.failure"),
    ("gpu_recovery_action",),
)
AMD_ERRORS = ["amd-smi", "metric", "--ecc", "--json"]
INTEL_ERRORS = ["hl-smi", "-Q", "index,ecc.errors.uncorrected.volatile.total", "-f", "csv,noheader,nounits"]
NO_TOOL, NO_ANSWER = 127, 126  # exit statuses of `run_tool`

_LOST = re.compile(r"^Unable to determine the device handle for (?:gpu|GPU)\s*([0-9A-Fa-f:.]+)", re.MULTILINE)


class FoundTrouble(NamedTuple):
    status: str  # failure or warning
    message: str
    certain: bool = True  # False: it counts when it is found again


Troubles = List[FoundTrouble]


def failure(text: str, *values: Any) -> FoundTrouble:
    return FoundTrouble("failure", text % values)


# --- disks ------------------------------------------------------------------------------------------------------------


def disk(path: str, purpose: str, before: str, statvfs: Callable[[str], Any] = os.statvfs) -> Troubles:
    """The trouble of a disk that is full or nearly full. `before` is its previous status."""
    try:
        found = statvfs(path)
    except OSError:
        return []  # the folder doesn't exist
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    full, low = min(256 * MIB, size // 20), min(1024 * MIB, size // 10)
    if free < full * (HYSTERESIS if before == "failure" else 1):
        return [failure("the disk under %s (%s) is full", path, purpose)]
    if free < low * (HYSTERESIS if before else 1):
        return [FoundTrouble("warning", "the disk under %s (%s) is nearly full" % (path, purpose))]
    return []


def tool_failure(tool: str, status: int) -> Troubles:
    """The trouble of a tool that fails on a machine with its vendor's GPUs; none if the tool isn't installed."""
    outcome = "doesn't answer" if status == NO_ANSWER else "fails with exit status %d" % status
    return [] if status == NO_TOOL else [FoundTrouble("failure", "%s %s" % (tool, outcome), certain=False)]


# --- GPUs -------------------------------------------------------------------------------------------------------------


class Nvidia:
    def __init__(self, run: Runner, cards: CardErrors, log: KernelLog) -> None:
        self._run, self._cards, self._log = run, cards, log
        self._groups: Optional[Tuple[Tuple[str, ...], ...]] = None  # the groups of fields that this driver knows
        self._cards_listed: Dict[str, str] = {}  # uuid → index

    def check(self, now: float) -> Troubles:
        """The troubles that nvidia-smi reports. `now`: seconds since the machine was started."""
        status, text, fields = self._query_cards()
        if status and not _LOST.search(text):
            return tool_failure("nvidia-smi", status)
        lost = [name.rstrip(".:") for name in _LOST.findall(text)]
        found = [failure("GPU %s: its driver can't reach it any more", name) for name in lost]
        cards = [row for row in gpu_tools.rows(text, len(fields)) if row[2].startswith("GPU-")]
        rows = [{name: row[at] for at, name in enumerate(fields)} for row in cards]
        for row in rows:
            found += self._of_card(row, now)
        listed = {row["uuid"]: row["index"] for row in rows}
        if not lost:
            missing = [index for uuid, index in self._cards_listed.items() if uuid not in listed]
            found += [failure("GPU %s: nvidia-smi doesn't list it any more", index) for index in missing]
        self._cards_listed.update(listed)
        return found

    def _query_cards(self) -> Tuple[int, str, Tuple[str, ...]]:
        groups = GROUPS if self._groups is None else self._groups
        status, text, fields = self._query(groups)
        if status and status != NO_TOOL and self._groups is None:
            status, text, fields = self._query(())
            if status == 0:  # the driver doesn't know some group
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
        if gpu_tools.count(row.get("ecc.errors.uncorrected.volatile.total")):
            found.append(failure("%s: uncorrected memory errors since its driver was loaded", name))
        if row.get("remapped_rows.failure") == "Yes":
            found.append(failure("%s: broken memory that can't be remapped", name))
        if row.get("remapped_rows.pending") == "Yes":
            found.append(FoundTrouble("warning", "%s: memory waits to be remapped by a reset" % name))
        action = row.get("gpu_recovery_action", "")
        if action == "None":
            self._cards.recovered(kernel_log.address(row["pci.bus_id"]), now)
        elif gpu_tools.value_of(action):
            found.append(failure("%s: its driver says that it needs: %s", name, action))
        return found

    def logged(self, now: float) -> Troubles:
        self._cards.add(self._log.new_errors())
        return [FoundTrouble(status, message) for status, message in self._cards.troubles(now)]


def amd(run: Runner) -> Troubles:
    """Uncorrectable errors that RAS has counted since the driver was loaded."""
    status, text = run(AMD_ERRORS)
    if status:
        return tool_failure("amd-smi", status)
    cards = gpu_tools.load(text)
    cards = cards.get("gpu_data") if isinstance(cards, dict) else cards
    found = []
    for card in cards if isinstance(cards, list) else ():
        errors = card.get("ecc") if isinstance(card, dict) else None
        count = errors.get("total_uncorrectable_count") if isinstance(errors, dict) else None
        if gpu_tools.count(count.get("value") if isinstance(count, dict) else count):
            found.append(failure("GPU %s: uncorrectable errors since its driver was loaded", card.get("gpu", "?")))
    return found


def intel(run: Runner) -> Troubles:
    status, text = run(INTEL_ERRORS)
    if status:
        return tool_failure("hl-smi", status)
    bad = [index for index, count in gpu_tools.rows(text, 2) if gpu_tools.count(count)]
    return [failure("GPU %s: uncorrected memory errors since its driver was loaded", index) for index in bad]


# --- the machine ------------------------------------------------------------------------------------------------------


class HealthChecks:
    """The health checks of one machine. Not safe for use by several threads at once."""

    def __init__(
        self,
        folders: Callable[[], Dict[str, str]],
        engines: Sequence[Callable[[], str]],
        run: Runner,
        root: str = "/",
        clock: Callable[[], float] = time.monotonic,
        statvfs: Callable[[str], Any] = os.statvfs,
    ) -> None:
        """`folders`: each folder's purpose; `engines`: the `problem` of each runtime."""
        self._folders, self._engines, self._run, self._root = folders, engines, run, root
        self._clock, self._statvfs = clock, statvfs
        self._tool_troubles: Troubles = []
        self._tools_at = float("-inf")
        self._disks: Dict[str, str] = {}  # folder → its previous status
        self._uncertain: Set[FoundTrouble] = set()

    @functools.cached_property
    def _nvidia(self) -> Nvidia:
        return Nvidia(self._run, kernel_log.CardErrors(), kernel_log.KernelLog(self._run, self._root))

    def check(self, vendors: Set[str]) -> List[Tuple[str, str]]:
        """(status, message) of every current trouble, failures first. `vendors` are those of the machine's GPUs."""
        now = self._clock()
        found = [*self._check_disks(), *self._check_engines()]
        if now >= self._tools_at + TOOLS_EVERY or any(not trouble.certain for trouble in self._tool_troubles):
            self._tool_troubles, self._tools_at = self._check_tools(vendors, now), now
        found += self._tool_troubles
        if "nvidia" in vendors:
            found += self._nvidia.logged(now)
        uncertain = {trouble for trouble in found if not trouble.certain}
        counting = [trouble for trouble in found if trouble.certain or trouble in self._uncertain]
        self._uncertain = uncertain
        return list(dict.fromkeys((each.status, each.message) for each in sorted(counting)))

    def _check_disks(self) -> Troubles:
        found, disks = [], {}
        for path, purpose in self._folders().items():
            troubles = disk(path, purpose, self._disks.get(path, ""), self._statvfs)
            disks[path] = troubles[0].status if troubles else ""
            found += troubles
        self._disks = disks
        return found

    def _check_engines(self) -> Troubles:
        problems = [problem() for problem in self._engines]
        return [FoundTrouble("failure", problem, certain=False) for problem in problems if problem]

    def _check_tools(self, vendors: Set[str], now: float) -> Troubles:
        found: Troubles = []
        if "nvidia" in vendors:
            found += self._nvidia.check(now)
        if "amd" in vendors:
            found += amd(self._run)
        if "intel" in vendors:
            found += intel(self._run)
        return found

"""How the simulated cloud behaves: its delays, capacity and faults.

A script is data, so it can be a file next to a running server and change while the server runs. A simulation with
random faults overrides `fault`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from chalicelib import errors
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import BackendError, Invalid, Throttled

Call = Literal[
    "check",
    "create",
    "describe",
    "list",
    "offers",
    "terminate",
    "create_group",
    "delete_group",
    "list_groups",
    "create_volume",
    "register_volume",
    "describe_volume",
    "attach_volume",
    "detach_volume",
    "delete_volume",
    "list_volumes",
]
TIMES = ("boot", "end", "lag", "ready", "attach", "detach")
# Before any effect; after the first resource; after all of them, with the reply lost.
FaultPoint = Literal["before", "between", "after"]

FAULTS = (
    "InsufficientCapacity",
    "QuotaExceeded",
    "InvalidCredentials",
    "MissingPermission",
    "Throttled",
    "AlreadyThere",
    "InUse",
    "Transient",
    "Bug",
)


@dataclass
class Fault:
    """The next `times` matching calls fail with `error`."""

    call: Call
    error: str
    when: FaultPoint = "before"
    times: int = 1
    region: str = ""  # empty: any
    type: str = ""
    retry_after: float = 5.0

    def __post_init__(self) -> None:
        if self.error not in FAULTS:
            raise Invalid(
                f"the simulated cloud can't fail with {self.error!r}", hint=f"Use one of {', '.join(FAULTS)}."
            )

    def make(self) -> Exception:
        text = f"simulated: {self.error} {self.when} {self.call}"
        if self.error == "Throttled":
            return Throttled(text, retry_after=self.retry_after)
        kind: type[BackendError] = getattr(errors, self.error)
        return kind(text)


@dataclass
class Script:
    capacity: dict[str, int] = field(default_factory=dict)  # "region/type" → machines at once; absent: no limit
    quota: dict[str, int] = field(default_factory=dict)  # type → machines at once in the account; `volume` → volumes
    boot: Micros = 2 * SECOND  # from create to the agent's first message
    end: Micros = 1 * SECOND  # from terminate to gone
    lag: Micros = 0  # how long a new resource stays out of listings and descriptions
    group: int | None = None  # machines that a placement group takes; None: no limit
    ready: Micros = 0  # from the creation of a volume until it is available
    attach: Micros = 0  # from the request until it is done
    detach: Micros = 0
    lies: int = 0  # terminations, attachments, detachments and deletions that are reported as done but not carried out
    forgets: int = 0  # descriptions of volumes that say there is no such volume
    absent: int = 0  # machines whose agent never reports
    short: int = 0  # machines that turn out to have no room when they should start
    bad_images: list[str] = field(default_factory=list)  # that can't be pulled, where containers are sold
    faults: list[Fault] = field(default_factory=list)

    def fault(self, call: Call, when: FaultPoint, *, region: str = "", type: str = "") -> Exception | None:
        """The error to fail with at this point, if any. The call counts as one use of it."""
        for fault in self.faults:
            fits = fault.call == call and fault.when == when and fault.times > 0
            if fits and fault.region in ("", region) and fault.type in ("", type):
                fault.times -= 1
                return fault.make()
        return None

    def take(self, what: Literal["lies", "absent", "forgets", "short"]) -> bool:
        left: int = getattr(self, what)
        setattr(self, what, max(0, left - 1))
        return left > 0


class ScriptFile:
    """A script in a JSON file, which is reread whenever it changes. Without a file, the defaults apply."""

    def __init__(self, path: Path, default: Script) -> None:
        self._path, self._default, self._script, self._stamp = path, default, default, -1

    def current(self) -> Script:
        try:
            stamp = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return self._script
        if stamp != self._stamp:
            self._script, self._stamp = read_script(self._path.read_bytes(), self._default), stamp
        return self._script


def read_script(text: bytes, default: Script) -> Script:
    """Durations in the file are seconds."""
    body: dict[str, Any] = orjson.loads(text)
    known = set(Script.__dataclass_fields__)
    if unknown := body.keys() - known:
        raise Invalid(f"the script has no field {sorted(unknown)}", hint=f"It has {', '.join(sorted(known))}.")
    times: dict[str, Any] = {name: round(body.pop(name) * SECOND) for name in TIMES if name in body}
    faults = [Fault(**fault) for fault in body.pop("faults", [])]
    start: dict[str, Any] = {**{name: getattr(default, name) for name in TIMES}, **times, **body}
    return Script(**start, faults=faults)

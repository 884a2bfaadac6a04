"""What one message may hold. The server refuses a larger one whole, so the agent splits and truncates what it sends.
`usecases/agent_message.py` has the same numbers, and a test compares them.

The parts of a message share its bytes of JSON. Task reports, which must be complete, get the largest share; output and
metrics wait for the next message once theirs is used up.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, cast

MESSAGE_BYTES = 2 * 1024 * 1024  # of JSON
TASKS_MOST = 2048  # twice the jobs that may share a machine: ended ones await removal while others start
TASKS_BYTES = 1024 * 1024
LOG_BYTES = 192 * 1024  # raw: 256 KB as base64
RECORDS_MOST = 20000
RECORDS_A_READ = 5000  # a message gets this many, plus whatever the last read adds: few, or tiny ones
METRICS_MOST = 300
METRICS_BYTES = 256 * 1024
GPUS_MOST = 64  # in one metric
TAKEN_BACK_MOST = 3600.0  # seconds until the machine's cloud takes it back
TROUBLES_MOST, TROUBLE_TEXT = 16, 200  # what is wrong with a machine, and the characters of each
TEXT_MOST = {"message": 1000, "held_by": 1000, "reason": 300, "username": 300, "working_dir": 4096}
WIDEST = 12  # bytes of JSON that one character may take


def size_of(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def sound(value: Any) -> Any:
    """The value with all text made valid UTF-8, which the name of a file or a host need not be."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [sound(item) for item in value]
    return {name: sound(item) for name, item in value.items()} if isinstance(value, dict) else value


def cleaned(report: Dict[str, Any]) -> Dict[str, Any]:
    """A report whose texts are valid UTF-8 and no longer than the server keeps."""
    made = dict(report)
    for name, most in TEXT_MOST.items():
        text = made.get(name)
        if isinstance(text, str) and len(text) > most:
            made[name] = text[: most - 1] + "…"
    return cast(Dict[str, Any], sound(made))


def fitted(report: Dict[str, Any], room: int) -> Dict[str, Any]:
    """The report in `room` bytes of JSON: its message is cut, then its other texts are left out."""
    if WIDEST * sum(len(report.get(name) or "") for name in TEXT_MOST) < room // 4:
        return report
    made = dict(report)
    over = size_of(made) - room
    if over > 0 and made.get("message"):
        made["message"] = cut(made["message"], max(0, size_of(made["message"]) - over))
    for name in ("working_dir", "username", "held_by"):
        if size_of(made) > room:
            made.pop(name, None)
    return made


def cut(text: str, room: int) -> str:
    """The beginning of a text, in `room` bytes of JSON."""
    while text and size_of(text) > room:
        text = text[: min(len(text) - 1, max(0, len(text) * room // size_of(text)))]
    return text


def bare(report: Dict[str, Any]) -> Dict[str, Any]:
    """The minimum, for a server that refused the rest."""
    names = ("id", "state", "at", "exit_status", "reason", "log_end", "mounted", "held", "access", "listens", "workers")
    return {name: report[name] for name in names if name in report}


def first_of(samples: List[Dict[str, Any]], room: Optional[int] = None) -> int:
    """How many of the samples fit into one message."""
    room, count = METRICS_BYTES if room is None else room, 0
    for sample in samples[:METRICS_MOST]:
        room -= size_of(sample) + 1
        if room < 0:
            break
        count += 1
    return count

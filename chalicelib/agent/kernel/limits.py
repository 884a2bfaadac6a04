"""Limits of one message. The server refuses a larger message entirely, so the agent splits and truncates what it sends.
`usecases/agent_message.py` reads them here.

The parts of a message share its bytes of JSON. Task reports, which must be complete, get the largest share; output and
metrics wait for the next message when their share is used up.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, List, Optional, TypeVar, cast

if TYPE_CHECKING:
    from ...contract.agent import GatewayReport, MetricPoint, TaskReport

Report = TypeVar("Report", "TaskReport", "GatewayReport")

MESSAGE_BYTES = 2 * 1024 * 1024  # of JSON
TASKS_MOST = 2048  # twice the jobs that may share a machine: ended jobs await removal while others start
TASKS_BYTES = 1024 * 1024
LOG_BYTES = 192 * 1024  # raw: 256 KB as base64
RECORDS_MOST = 20000
RECORDS_A_READ = 5000  # no read begins once a message has this many
METRICS_MOST = 300
METRICS_BYTES = 256 * 1024
GPUS_MOST = 64  # in one metric
TAKEN_BACK_MOST = 3600.0  # seconds until the machine's cloud takes it back
TROUBLES_MOST, TROUBLE_TEXT = 16, 200  # health problems of a machine, and the characters of each
TEXT_MOST = {"message": 1000, "held_by": 1000, "reason": 300, "username": 300, "working_dir": 4096}
WIDEST = 12  # the most bytes of JSON that one character takes


def size_of(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def valid_utf8(value: Any) -> Any:
    """The value with all text made valid UTF-8, which names of files and hosts need not be."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [valid_utf8(item) for item in value]
    return {name: valid_utf8(item) for name, item in value.items()} if isinstance(value, dict) else value


def clean_report(report: Report) -> Report:
    """The report with texts that are valid UTF-8 and no longer than the server stores."""
    result: Dict[str, Any] = {**report}
    for name, most in TEXT_MOST.items():
        text = result.get(name)
        if isinstance(text, str) and len(text) > most:
            result[name] = text[: most - 1] + "…"
    return cast(Report, valid_utf8(result))


def fit_report(report: TaskReport, room: int) -> TaskReport:
    """The report in at most `room` bytes of JSON: its message is cut first, then its other texts are left out."""
    result: Dict[str, Any] = {**report}
    if WIDEST * sum(len(result.get(name) or "") for name in TEXT_MOST) < room // 4:
        return report
    over = size_of(result) - room
    if over > 0 and result.get("message"):
        result["message"] = cut(result["message"], max(0, size_of(result["message"]) - over))
    for name in ("working_dir", "username", "held_by"):
        if size_of(result) > room:
            result.pop(name, None)
    return cast("TaskReport", result)


def cut(text: str, room: int) -> str:
    """The beginning of a text that takes at most `room` bytes of JSON."""
    while text and size_of(text) > room:
        text = text[: min(len(text) - 1, max(0, len(text) * room // size_of(text)))]
    return text


def bare_report(report: TaskReport) -> TaskReport:
    """The report without its texts, for a server that refused the full one."""
    names = ("id", "state", "at", "exit_status", "reason", "log_end", "mounted", "held", "access", "listens", "workers")
    return cast("TaskReport", {name: value for name, value in report.items() if name in names})


def count_fitting(samples: List[MetricPoint], room: Optional[int] = None) -> int:
    """How many of the samples fit into one message."""
    room, count = METRICS_BYTES if room is None else room, 0
    for sample in samples[:METRICS_MOST]:
        room -= size_of(sample) + 1
        if room < 0:
            break
        count += 1
    return count

"""What a question about a job comes to. Such questions change nothing; who asks carries out the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import JobReason


class JobVerdict(NamedTuple):
    reason: JobReason | None = None  # why the job ends; None: it goes on
    message: str = ""
    check_at: Micros | None = None  # when to ask again
    record: Mapping[str, Any] = {}  # fields of the job that show what was found


CONTINUES = JobVerdict()

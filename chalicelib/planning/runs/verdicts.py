"""The result of a check of a job. Checks change nothing; the caller carries out the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import JobReason


class JobVerdict(NamedTuple):
    reason: JobReason | None = None  # why the job ends; None: it goes on
    message: str = ""
    check_at: Micros | None = None  # when to check again
    record: Mapping[str, Any] = {}  # fields of the job that show what was found


CONTINUES = JobVerdict()

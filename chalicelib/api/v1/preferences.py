"""`Prefer: wait=…` (RFC 7240): how long a caller would wait for a resource to settle."""

from __future__ import annotations

import re

LONGEST = 25  # seconds: API Gateway ends a call after 29

_WAIT = re.compile(r'\s*wait\s*=\s*"?(\d{1,6})"?\s*(?:;.*)?', re.IGNORECASE)


def wait_of(prefer: str) -> int:
    """The seconds to wait, at most LONGEST; 0 without such a preference. The first one counts, and a preference that
    can't be read is ignored, as the RFC has it: nobody depends on it."""
    found = next((found for each in prefer.split(",") if (found := _WAIT.fullmatch(each))), None)
    return 0 if found is None else min(int(found[1]), LONGEST)


def applied(seconds: int) -> dict[str, str]:
    return {"Preference-Applied": f"wait={seconds}"} if seconds else {}

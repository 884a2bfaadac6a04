"""Google's codes of remote procedure calls, by the numbers that operations and parts of answers have in their place."""

from __future__ import annotations

_NAMES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)


def code_of(number: int) -> str:
    """A number that is none is its own name. 0 is no failure, and has none."""
    if not number:
        return ""
    return _NAMES[number] if 0 < number < len(_NAMES) else str(number)

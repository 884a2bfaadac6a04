"""Translates what Crusoe refuses into our errors. Only the text tells a lack of capacity, or a quota that is used up,
from a request that is wrong: all of these are a 400, or the result of an operation that was accepted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure
from chalicelib.backends.kit.rest import failure_by_status

_WRAPPED = " desc = "  # what a service of theirs said comes after it

TABLE = ErrorTable.read("Crusoe", "crusoe/errors.toml")


def failure_of(status: int, data: Any) -> ProviderFailure | None:
    failure = failure_by_status(status, data)
    if failure is None:
        return None
    text = failure.text.rpartition(_WRAPPED)[2]
    if status == 401:  # the time is signed, too
        text = f"{text}; a clock that is wrong looks the same"
    return replace(failure, text=text)

"""Translates what Azure refuses into our errors.

One status, 409, covers a lack of capacity, a quota and a conflict alike, so codes and texts decide. A deployment's
failure may be wrapped in others. A quota is refused with a text that ends in addresses, of which the numbers are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure
from chalicelib.backends.kit.rest import failure_by_status
from chalicelib.errors import BackendError, InsufficientCapacity, MissingPermission, QuotaExceeded, Transient, Unfit

QUOTA = "QuotaExceeded"
TABLE = ErrorTable.read("Azure", "azure/errors.toml")

_OF_QUOTA = re.compile(r"LowPriorityCores|Cores quota|exceeding approved|Submit a request for Quota increase")
_NUMBERS = re.compile(
    r"exceeding approved (?P<what>.+?) quota.*?Current Limit: (?P<limit>\d+), Current Usage: (?P<used>\d+), "
    r"Additional Required: (?P<more>\d+)",
    re.DOTALL,
)
# Of a creation: another zone may have what this one refused.
_ELSEWHERE = frozenset({"LocationNotAvailableForResourceType"})
# Why Azure gave up a creation that it had accepted: what its refusal at once would have meant.
LATE = (InsufficientCapacity, QuotaExceeded, Unfit, MissingPermission)


def failure_of(status: int, data: Any) -> ProviderFailure | None:
    failure = failure_by_status(status, data)
    return None if failure is None else refined(_innermost(failure, data))


def refined(failure: ProviderFailure) -> ProviderFailure:
    """A refused quota has a code of its own then, and a text of reasonable length."""
    if failure.code not in ("OperationNotAllowed", QUOTA) or not _OF_QUOTA.search(failure.text):
        return failure
    found = _NUMBERS.search(failure.text)
    if found is None:
        return replace(failure, code=QUOTA)
    text = "the quota of {what} is {limit}; {used} are in use, and this takes {more} more"
    return replace(failure, code=QUOTA, text=text.format(**found.groupdict()))


def _innermost(failure: ProviderFailure, data: Any) -> ProviderFailure:
    """The failure that the table knows, of those that are wrapped in others; else the outermost."""
    for code, text in _wrapped(data.get("error") if isinstance(data, Mapping) else None):
        inner = refined(replace(failure, code=code, text=text))
        if TABLE.kind(ProviderFailure(inner.code)) is not Transient:
            return inner
    return failure


def _wrapped(error: Any) -> Iterator[tuple[str, str]]:
    """Code and text of an error, and of those in its details."""
    if isinstance(error, Mapping):
        yield str(error.get("code") or ""), str(error.get("message") or "")
        details = error.get("details")
        for inner in details if isinstance(details, list) else ():
            yield from _wrapped(inner)


def refused_late(code: str, text: str) -> type[BackendError] | None:
    """What a creation that failed after it was accepted would have been refused with; None: nothing of the kind."""
    kind = TABLE.kind(refined(ProviderFailure(code, text)))
    return kind if kind in LATE else None


def elsewhere(error: BackendError) -> bool:
    """Did the creation fail only for this zone?"""
    return isinstance(error, InsufficientCapacity) or error.provider_code in _ELSEWHERE

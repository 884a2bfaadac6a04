"""Translates what Lambda refuses into our errors. Its codes decide; its texts are only for people.

A host behind Lambda may fail with a code of its own (`provider/…`), whose text alone shows a lack of capacity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure
from chalicelib.backends.kit.rest import failure_by_status
from chalicelib.errors import (
    AlreadyThere,
    InsufficientCapacity,
    InvalidCredentials,
    MissingPermission,
    QuotaExceeded,
    Unfit,
)

NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
NO_OBJECT, WRONG_VALUE = "global/object-does-not-exist", "global/invalid-parameters"
TABLE = ErrorTable(
    "Lambda",
    (
        (InsufficientCapacity, NO_CAPACITY),
        (QuotaExceeded, "global/quota-exceeded"),
        (InvalidCredentials, "global/invalid-api-key global/account-inactive global/invalid-address"),
        (MissingPermission, "global/forbidden"),
        (AlreadyThere, "global/duplicate"),
        (Unfit, WRONG_VALUE),
    ),
)
_SCARCE = re.compile(r"quota|exhaust|capacity", re.IGNORECASE)


def failure_of(status: int, data: Any) -> ProviderFailure | None:
    failure = failure_by_status(status, data)
    if failure is None:
        if isinstance(data, Mapping) and "data" in data:
            return None
        return ProviderFailure("", "its answer has no data", status)
    if failure.code.startswith("provider/") and _SCARCE.search(failure.text):
        return replace(failure, code=NO_CAPACITY)
    error = data.get("error") if isinstance(data, Mapping) else None
    advice = error.get("suggestion") if isinstance(error, Mapping) else None
    return replace(failure, text=f"{failure.text} {advice}") if isinstance(advice, str) and advice else failure

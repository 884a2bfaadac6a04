"""Translates what Runpod refuses into our errors.

A pod that can't be created is a 400, whatever the reason is: only the text tells a lack of capacity from a request that
is wrong. A 402 is an account without the credit for an hour of the pod.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure
from chalicelib.backends.kit.rest import failure_by_status
from chalicelib.errors import InsufficientCapacity, InUse

NO_CAPACITY = "no-capacity"
_SCARCE = re.compile(
    r"(no longer|not|no|aren't|isn't) (\w+ ){0,3}available|instances? available|insufficient|not enough"
    r"|out of (stock|capacity)|no capacity|(have|has) the resources|SUPPLY_CONSTRAINT",
    re.IGNORECASE,
)
TABLE = ErrorTable(
    "Runpod",
    ((InsufficientCapacity, NO_CAPACITY),),
    ((InUse, r"remove this network volume from all pods"),),
)


def failure_of(status: int, data: Any) -> ProviderFailure | None:
    failure = failure_by_status(status, data)
    if failure is not None and status == 400 and _SCARCE.search(failure.text):
        return replace(failure, code=NO_CAPACITY)
    return failure

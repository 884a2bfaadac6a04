"""Translates what Vast.ai refuses into our errors.

Its status alone proves nothing: a wrong key may be a 404, and a retired endpoint is a 410, as if an instance were gone.
So the code decides, or else the text, which has several names. A failure may also come with status 200.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.errors import STATUSES, ErrorTable, ProviderFailure, described
from chalicelib.errors import Gone, InsufficientCapacity, InvalidCredentials, QuotaExceeded, Transient, Unfit

NO_OFFER, NO_INSTANCE = "no_such_ask", "no_such_instance"
TAKEN, NO_CREDIT, WRONG_KEY = "taken", "no_credit", "auth_error"
PAUSE = 5.0  # seconds, after a call that came too soon: no answer says how long

TABLE = ErrorTable(
    "Vast.ai",
    (
        (InvalidCredentials, WRONG_KEY),
        (InsufficientCapacity, f"{NO_OFFER} {TAKEN} invalid_price"),
        (Gone, NO_INSTANCE),
        (Unfit, "invalid_args no_ssh_key_for_vm"),
        (QuotaExceeded, NO_CREDIT),
        (Transient, "deprecated_endpoint"),
    ),
    statuses={**STATUSES, 404: Transient, 410: Transient},
)
_TEXTS = [
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (WRONG_KEY, WRONG_KEY),
        (NO_OFFER, NO_OFFER),
        (NO_INSTANCE, NO_INSTANCE),
        (r"(insufficient|not enough|lacks?|no) (\w+ )?(credits?|balance|funds)|(credit|balance) is too low", NO_CREDIT),
        (r"no longer|not available|unavailable", TAKEN),
    )
]


def failure_of(status: int, data: Any) -> ProviderFailure | None:
    """None for a success. An answer with an instance's id is one, whatever else it says: that instance is there."""
    if status == 429:
        return ProviderFailure("", data if isinstance(data, str) else "", status, PAUSE)
    if 200 <= status < 300:
        if not isinstance(data, Mapping):
            return ProviderFailure("", "the answer isn't an object", status)
        if data.get("success", True) or data.get("new_contract"):
            return None
    failure = described(data, status)
    if failure.code in _KNOWN or status >= 500:
        return failure
    return replace(failure, code=next((code for text, code in _TEXTS if text.search(failure.text)), failure.code))


_KNOWN = {WRONG_KEY, NO_OFFER, NO_INSTANCE, "invalid_price", "deprecated_endpoint"}

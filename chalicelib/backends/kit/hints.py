"""What is good to know and not needed: quotas, reservations, what is in stock. An account may lack the right to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from chalicelib.errors import BackendError, InvalidCredentials, MissingPermission

log = logging.getLogger(__name__)

T = TypeVar("T")


def hint(ask: Callable[[], T], otherwise: T, what: str, failures: type[BackendError] = MissingPermission) -> T:
    """What `ask` returns, or `otherwise` if it fails like this. `what` stays unknown then, as the log says. Credentials
    that are refused aren't a matter of one call."""
    try:
        return ask()
    except InvalidCredentials:
        raise
    except failures as error:
        log.info("%s stay unknown: %s", what, error)
        return otherwise

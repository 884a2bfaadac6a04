"""Every answer that a test gets from the API keeps the contract: it has the keys of its route's type, and no others."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from chalicelib.api import dispatch
from chalicelib.api.dispatch import Reply
from chalicelib.api.route import Route


def watch() -> None:
    """From now on, in a process of tests."""
    if "pytest" in sys.modules and check not in dispatch.watchers:
        dispatch.watchers.append(check)


def check(route: Route, reply: Reply) -> None:
    from docs.openapi.declared import reader

    found = reader(route, reply.status)
    if found is None:
        return
    try:
        found.validate_json(reply.body)
    except ValidationError as error:
        raise AssertionError(f"{route.method} {route.path} breaks its contract with {reply.status}: {error}") from None

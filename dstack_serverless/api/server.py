"""The server itself: its version and health, which need no token, and for admins the storage that its data takes
and what it costs.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import Request

if TYPE_CHECKING:
    from chalicelib import contract


def get_info() -> Request[contract.ServerInfo]:
    """Needs no token."""
    return Request(
        "POST",
        "/api/server/get_info",
        safe=True,
    )


def get_usage() -> Request[contract.ServerUsage]:
    """The space that the data takes, and how long it is kept.

    For global admins.
    """
    return Request(
        "POST",
        "/api/server/get_usage",
        safe=True,
    )


def get_cost() -> Request[contract.ServerCost]:
    """What the control plane costs in AWS in a month.

    For global admins.
    """
    return Request(
        "POST",
        "/api/server/get_cost",
        safe=True,
    )


def get_slo() -> Request[contract.ServerSlo]:
    """How the server keeps its objectives, by its own measure.

    For global admins.
    """
    return Request(
        "POST",
        "/api/server/get_slo",
        safe=True,
    )


def get_restoration() -> Request[contract.RestorationAnswer]:
    """Whether the server was restored from a backup, whether it only looks since, and what it has met.

    For global admins.
    """
    return Request(
        "POST",
        "/api/server/get_restoration",
        safe=True,
    )


def go_on() -> Request[contract.RestorationAnswer]:
    """Lets a restored server act again before its hour of looking is over: it ends what isn't recorded.

    For global admins.
    """
    return Request(
        "POST",
        "/api/server/go_on",
    )


def healthcheck() -> Request[contract.Health]:
    """A server that can read its store is healthy.

    Needs no token.
    """
    return Request(
        "GET",
        "/healthcheck",
        safe=True,
    )

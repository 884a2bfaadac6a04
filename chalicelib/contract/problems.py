"""Errors."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict


class Problem(TypedDict):
    """What is wrong, where, and how to fix it. Each line of `msg` is one problem."""

    msg: str
    code: Literal["error", "resource_not_exists", "resource_exists", "backend_not_available", "invalid_credentials"]
    fields: NotRequired[list[str]]
    """The dotted path of a field for each line of `msg`; empty for a line about no field."""


class Failure(TypedDict):
    """A request that was refused, or that failed."""

    detail: list[Problem]


class Denial(TypedDict):
    msg: str
    code: None


class Denied(TypedDict):
    """The caller may not do this, or there is no such project."""

    detail: Denial


class NoRoute(TypedDict):
    """There is nothing at this path, or not with this method."""

    detail: str

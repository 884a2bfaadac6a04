"""Backends of a project."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from chalicelib.contract.values import Date

BackendConfig = dict[str, Any]
"""As the reference of the server's file describes it, with secrets hidden."""


class Backend(TypedDict):
    """A backend of a project, and the age of its offers."""

    name: str
    source: Literal["file", "api"]
    config: BackendConfig
    """Without credentials."""
    changed_at: Date
    offers_taken_at: Date | None
    offers_error: str


class BackendYaml(TypedDict):
    name: str
    config_yaml: str

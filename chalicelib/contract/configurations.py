"""Stored configurations, templates of the console, and tokens for services."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from chalicelib.contract.values import Configuration, Date, Id


class Automation(TypedDict):
    """A stored configuration without its content, which may contain keys and passwords."""

    id: Id
    name: str
    type: str
    user: str
    stored_at: Date


class TemplateParameter(TypedDict):
    """A part of a form. A variable (`env`) has a title, a name and a default value."""

    type: Literal["name", "ide", "resources", "python_or_docker", "repo", "working_dir", "env"]
    title: NotRequired[str | None]
    name: NotRequired[str | None]
    value: NotRequired[str | None]


class Template(TypedDict):
    """A form that fills in a configuration."""

    type: Literal["template"]
    name: str
    title: str
    description: str | None
    parameters: list[TemplateParameter]
    configuration: Configuration
    """Incomplete: the form completes it."""


class ServiceToken(TypedDict):
    """A token that may call services."""

    token: str
    expires_at: Date
    run_name: str | None
    """The one service that it is for; null: those of the project."""

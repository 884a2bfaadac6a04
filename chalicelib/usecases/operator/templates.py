"""Templates: forms that the web console fills configurations in with. The operator writes them as files.

They are read for each request, so a new one is available at once. One that can't be read is refused with its file,
line and column, and hides the others: a form that is missing without an error is harder to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chalicelib.configuration.parse import decode, parse_as

MOST = 200  # templates in one list
_KINDS = Literal["task", "service", "dev-environment", "fleet", "volume", "gateway"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Strict):
    """A part of the form. A variable has a title, a name, and a default value."""

    type: Literal["name", "ide", "resources", "python_or_docker", "repo", "working_dir", "env"]
    title: str | None = None
    name: str | None = None
    value: str | None = None

    @model_validator(mode="after")
    def _of_a_variable(self) -> Parameter:
        if self.type != "env" and self.model_fields_set != {"type"}:
            raise ValueError("only a parameter of `type: env` has a title, a name or a value")
        return self


class Described(BaseModel):
    """The incomplete configuration: the form completes it, and applying it checks it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: _KINDS


class Template(_Strict):
    type: Literal["template"]
    name: Annotated[str, Field(min_length=1, max_length=100)]
    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: str | None = None
    parameters: list[Parameter] = []
    configuration: Described


def list_templates(files: Mapping[str, bytes]) -> list[Template]:
    """The templates in these files, in the order of their names."""
    listed = sorted(files.items())[:MOST]
    return [parse_as(Template, decode(raw, name), filename=name) for name, raw in listed]

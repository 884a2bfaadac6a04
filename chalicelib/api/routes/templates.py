"""Templates over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.route import Call
from chalicelib.api.wire.templates import template_json
from chalicelib.usecases.operator import templates

if TYPE_CHECKING:
    from chalicelib import contract


def list_templates(call: Call) -> list[contract.Template]:
    """The operator's templates."""
    return [template_json(each) for each in templates.list_templates(call.plane.templates())]

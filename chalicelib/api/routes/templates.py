"""Templates over HTTP."""

from __future__ import annotations

from typing import Any

from chalicelib.api.route import Call
from chalicelib.usecases.operator import templates


def list_templates(call: Call) -> Any:
    return templates.list_templates(call.plane.templates())

"""Gateways over HTTP: none can be made yet, so a project that is asked for its gateways has none.

An empty list and not a refusal: clients ask for it beside other things, and show those only if all of them came.
What would make a gateway, or needs one, is refused (`refused.py`).
"""

from __future__ import annotations

from typing import Any

from chalicelib.api.route import Call


def list_project(call: Call) -> list[Any]:
    return []

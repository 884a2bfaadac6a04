"""Single sign-on: clients list the providers before anybody logs in. There are none."""

from __future__ import annotations

from chalicelib.api.route import Call


def list_providers(call: Call) -> list[object]:
    return []

"""Pages of a log on the wire. Bytes travel as base64, because a log is whatever a program wrote."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chalicelib.domain.instants import iso
from chalicelib.store.logs import Piece

if TYPE_CHECKING:
    from chalicelib import contract


def log_page_json(records: Sequence[Piece], next_token: str | None) -> contract.LogPage:
    return {
        "logs": [
            {"timestamp": iso(at), "log_source": "stdout", "message": b64encode(data).decode()} for at, data in records
        ],
        "external_url": None,
        "next_token": next_token,
    }

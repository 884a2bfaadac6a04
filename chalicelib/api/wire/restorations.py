"""What a restored control plane has met, on the wire: of a running server, or of a data folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.restorations import Restoration

if TYPE_CHECKING:
    from chalicelib import contract


def restoration_json(mark: Restoration | None, now: Micros) -> contract.RestorationAnswer:
    if mark is None:
        return {"restored": None}
    shown: contract.ServerRestoration = {
        "as_of": iso(mark.as_of),
        "at": iso(mark.at),
        "looks_until": iso(mark.looks_until),
        "went_on_at": None if mark.went_on_at is None else iso(mark.went_on_at),
        "looking": mark.looking(now),
        "whole": mark.whole,
        "met": [{"kind": each.kind, "id": each.id, "says": each.says} for each in mark.met],
    }
    return {"restored": shown}

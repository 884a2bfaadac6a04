"""`dstack server restored` of a control plane that is elsewhere, such as one in AWS."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api.wire.restorations import restoration_json
from chalicelib.domain.instants import HOUR
from chalicelib.domain.restorations import Met, Restoration
from tests.cli.conftest import Dstack
from tests.cli.plane import Plane
from tests.world.time import NOW

MARK = Restoration(
    as_of=NOW - HOUR, at=NOW, looks_until=NOW + HOUR, met=(Met(kind="machine", id="i", says="It has i."),)
)


@pytest.mark.parametrize(
    ("flags", "mark", "now", "last"),
    [
        ("", MARK, NOW, "It only looks until {until}, or until: dstack server restored --project main --go-on"),
        ("--go-on", MARK.with_(went_on_at=NOW), NOW, "It acts since {at}, by an operator's word."),
        ("", MARK, NOW + HOUR, "It acts since {until}."),
        ("", MARK.with_(whole=False), NOW + HOUR, "Not all records are back, so it only looks: run"),
        ("", None, NOW, "This server wasn't restored from a backup."),
    ],
)
def test_it_shows_what_a_server_says(
    dstack: Dstack, plane: Plane, flags: str, mark: Restoration | None, now: int, last: str
) -> None:
    asked = f"/api/server/{'go_on' if flags else 'get_restoration'}"
    answer: Any = restoration_json(mark, now)
    plane.answers[asked] = answer
    done = dstack("server", "restored", "--project", "main", *flags.split())
    lines = done.out.splitlines()
    assert done.code == 0 and len(plane.bodies(asked)) == 1
    shown = answer["restored"]
    if shown is not None:
        assert lines[1].strip() == "It has i."
        last = last.format(at=f"{shown['at'][:19]}Z", until=f"{shown['looks_until'][:19]}Z")
    assert " ".join(done.out.split()).find(last) >= 0, done.out


def test_a_folder_and_a_server_are_not_asked_at_once(dstack: Dstack) -> None:
    ended = dstack("server", "restored", "--project", "main", "--data-dir", "/srv/dstack")
    assert ended.code == 2 and "give one" in ended.err

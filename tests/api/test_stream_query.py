"""What a client asks of a stream: a job's numbers, and since when to show its log."""

from __future__ import annotations

import pytest

from chalicelib.api.dispatch import Request, answer
from chalicelib.api.routes.streams import StreamQuery
from chalicelib.domain.instants import SECOND
from tests.api.rig import ADMIN, Rig


@pytest.mark.parametrize("text", ["1_0", " 1", "1 ", "+1", "-1", "1.0", "1e1", "", "١", "100000"])
@pytest.mark.parametrize("name", ["replica", "job"])
def test_only_digits_are_a_number(name: str, text: str, rig: Rig) -> None:
    asked = Request("GET", "/api/project/main/streams/x", {name: text}, {"authorization": f"Bearer {ADMIN}"})
    reply = answer(rig.world.plane, asked)
    assert reply.status == 400 and f"{name}: should be a number from 0".encode() in reply.body


def test_digits_are_a_number() -> None:
    found = StreamQuery.model_validate({"replica": "99999", "job": "007"})
    assert (found.replica, found.job) == (99_999, 7)


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("", None),
        ("0001-01-01T00:00:00+00:00", 0),
        ("1969-12-31T23:59:59Z", 0),
        ("1970-01-01T00:00:01Z", SECOND),
    ],
)
def test_a_start_before_all_logs_means_all_of_them(text: str, since: int | None) -> None:
    assert StreamQuery.model_validate({"start_time": text}).start_time == since

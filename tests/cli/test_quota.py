"""`dstack project quota`: what it sends, and what it takes for a limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.applying.test_flags import QUOTA
from tests.cli.conftest import Dstack
from tests.cli.plane import Plane


@pytest.fixture(autouse=True)
def answers(plane: Plane) -> None:
    plane.answers |= {"/api/projects/main/get_quota": QUOTA, "/api/projects/main/set_quota": QUOTA}


@pytest.mark.parametrize(
    ("args", "sent"),
    [
        ("--gpus 12 --money $7.5", {"username": None, "each_user": False, "gpus": 12, "money": 7.5}),
        ("--jobs off --user alice", {"username": "alice", "each_user": False, "jobs": None}),
        ("--each-user --jobs 0", {"username": None, "each_user": True, "jobs": 0}),
    ],
)
def test_only_the_given_limits_are_sent(dstack: Dstack, plane: Plane, args: str, sent: dict[str, Any]) -> None:
    assert dstack("project", "quota", *args.split()).code == 0
    assert plane.bodies("/api/projects/main/set_quota") == [sent]


def test_it_shows_what_is_used(dstack: Dstack, plane: Plane) -> None:
    assert "main         10 of 12  3     $12.30 of $50" in dstack("project", "quota").out
    assert json.loads(dstack("project", "quota", "--json").out)["quota"] == QUOTA
    assert plane.bodies("/api/projects/main/set_quota") == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--gpus 1.5", "--gpus takes a whole number or `off`, not '1.5'."),
        ("--jobs -1", "--jobs takes a whole number"),
        ("--money nan", "--money takes an amount of dollars or `off`"),
        ("--user alice", "give a limit: --gpus, --jobs or --money."),
        ("--user alice --each-user --jobs 1", "--user and --each-user exclude each other."),
    ],
)
def test_what_is_no_limit_is_refused(dstack: Dstack, args: str, message: str) -> None:
    ended = dstack("project", "quota", *args.split())
    assert ended.code == 2
    assert message in ended.err

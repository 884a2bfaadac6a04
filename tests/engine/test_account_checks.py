"""A check that somebody waits for has patience with an account's limits of calls."""

from __future__ import annotations

import pytest

from chalicelib.engine.account_checks import TURNS, check_in_turn
from chalicelib.errors import InvalidCredentials, Throttled
from tests.world.keyed import Keyed


class Busy(Keyed):
    """It has no turn at first."""

    def __init__(self, waits: list[float], key: str = "good") -> None:
        super().__init__(key, [])
        self.waits, self.calls = waits, 0

    def check(self) -> None:
        self.calls += 1
        if self.waits:
            raise Throttled("no more calls now", retry_after=self.waits.pop(0))
        super().check()


def test_a_check_waits_for_its_turn() -> None:
    backend, paused = Busy([6.0, 0.0, 3.0]), list[float]()
    check_in_turn(backend, {}, "install", paused.append)
    assert paused == [6.0, 0.0, 3.0] and backend.calls == 4


def test_it_doesnt_wait_longer_than_its_caller() -> None:
    for waits in ([TURNS + 1], [9.0, 9.0], [0.0] * 1_000):
        paused = list[float]()
        with pytest.raises(Throttled, match="no more calls"):
            check_in_turn(Busy(waits), {}, "install", paused.append)
        assert sum(paused) <= TURNS and len(paused) <= 160


def test_what_is_wrong_is_said_after_the_wait() -> None:
    with pytest.raises(InvalidCredentials):
        check_in_turn(Busy([1.0], "bad"), {}, "install", lambda seconds: None)

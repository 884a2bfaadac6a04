"""How often a gateway's program asks what to serve; it needs no nginx for that. With one, `tests/serving` plays it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from chalicelib.agent.gateway.nginx import Listens, Nginx
from chalicelib.agent.gateway.program import UNREACHED, GatewayProgram
from chalicelib.agent.gateway.worker_requests import TokenVerdict
from chalicelib.agent.kernel.link import LinkError


class ScriptedPlane:
    """A control plane with these answers, in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def configuration(self, since: str) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, LinkError):
            raise answer
        return dict(answer)

    def report(self, reports: list[dict[str, Any]]) -> None:
        raise AssertionError("nothing was counted")

    def streams(self, orders: list[dict[str, Any]], pin: str) -> None:
        raise AssertionError("there are no replicas")

    def rights(self, token: str, project: str, run: str) -> TokenVerdict:
        raise AssertionError("nobody calls")


class Over(threading.Event):
    """What a program waits for between its questions: it comes with the last answer."""

    def __init__(self, is_last: Callable[[], bool]) -> None:
        super().__init__()
        self.is_last, self.waits = is_last, list[float | None]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        if self.is_last():
            self.set()
        return self.is_set()


def poll_all(folder: Path, *answers: Any, each_takes: float = 0.0) -> tuple[list[float | None], bool]:
    """For how long it waits after each answer, and whether it ends."""
    plane = ScriptedPlane(*answers)
    nginx, clock = Nginx(str(folder), Listens(["0"])), count(step=each_takes)
    program = GatewayProgram(str(folder), nginx, plane, lambda line: None, lambda: next(clock))
    program._over = over = Over(lambda: not plane.answers)
    program._poll()
    program._relays.close()
    return over.waits, program._deleted


def test_it_asks_as_often_as_the_control_plane_says(tmp_path: Path) -> None:
    assert poll_all(tmp_path, {}, {"ask_in": 7}, {"ask_in": 0.1}, {"ask_in": "30"}) == ([1, 7, 1, 30], False)


def test_the_time_in_which_the_control_plane_held_a_question_is_part_of_the_pause(tmp_path: Path) -> None:
    assert poll_all(tmp_path, {"ask_in": 7}, {"ask_in": 30}, each_takes=25.0) == ([0, 5], False)


def test_it_asks_ever_more_seldom_what_isnt_answered_or_makes_no_sense(tmp_path: Path) -> None:
    away, nonsense = LinkError("away"), {"services": 3, "ask_in": 5}
    assert poll_all(tmp_path, away, nonsense, away, nonsense, away, {}, nonsense) == ([2, 4, 8, 10, 10, 1, 2], False)


def test_a_gateway_that_is_gone_asks_no_more(tmp_path: Path) -> None:
    assert poll_all(tmp_path, LinkError("HTTP 410", status=410), {}) == ([], True)


def test_its_state_says_that_no_host_reaches_it_as_long_as_they_get_its_orders(tmp_path: Path) -> None:
    program = GatewayProgram(str(tmp_path), Nginx(str(tmp_path), Listens(["0"])), ScriptedPlane(), lambda line: None)

    def noted(unreached: int, *, orders_pass: bool) -> str | None:
        program._relays.unreached, program._orders_pass = unreached, orders_pass
        program._note_streams()
        state = tmp_path / "state.json"
        return str(json.loads(state.read_text())["message"]) if state.exists() else None

    assert noted(2, orders_pass=False) is None, "the control plane is away"
    assert noted(2, orders_pass=True) == UNREACHED
    assert noted(0, orders_pass=True) == ""
    program._relays.close()

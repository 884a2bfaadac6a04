"""How long a gateway goes by what it was told of a token: its Lua, with the time as an input."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving.lua import run

pytestmark = pytest.mark.slow  # not for what they take: LuaJIT is installed where it is missing, with nginx

SETTING = """
local answer, calls, takes = { status = 200 }, 0, 0
package.loaded.questions = { ask = function(question)
    calls = calls + 1
    clock = clock + takes
    return answer
end }
local access = require "access"
local caller = { authorization = "Bearer token", let_in_until = 0 }
local function judge() return access.judge(caller, "project", "run") end
local function after(seconds)
    clock = clock + seconds
    return judge()
end
"""


def run_verdicts(script: str) -> list[Any]:
    return run(SETTING + script)


def test_a_verdict_without_an_end_is_good_for_a_minute() -> None:
    assert run_verdicts("return { judge(), after(49), calls }") == [200, 200, 1]
    assert run_verdicts("judge() answer = { status = 403 } return { after(61), calls }") == [403, 2]


@pytest.mark.parametrize("token", ["token", "dstack-service.claims.signature"])
def test_nobody_is_let_in_after_the_end_of_their_token(token: str) -> None:
    setting = f'caller.authorization = "Bearer {token}" answer.ends_in = 20 judge() answer = {{ status = 403 }}'
    assert run_verdicts(f"{setting} return {{ after(19.9), calls, after(0.1), calls }}") == [200, 1, 403, 2]


def test_a_workers_own_memory_of_a_caller_ends_with_the_token_too() -> None:
    setting = "answer.ends_in = 20.25 judge() after(19.75) answer = { status = 403 }"
    assert run_verdicts(f"{setting} return {{ after(0.5), calls }}") == [403, 2]


def test_the_end_counts_from_when_the_question_was_put() -> None:
    setting = "answer.ends_in = 20 takes = 8 judge() answer = { status = 403 } takes = 0"
    assert run_verdicts(f"{setting} return {{ after(11.9), after(0.1) }}") == [200, 403]
    late = "answer.ends_in = 5 takes = 8 judge() takes = 0"
    assert run_verdicts(f"{late} return {{ judge(), calls, judge(), calls }}") == [200, 2, 200, 2]


@pytest.mark.parametrize("left", [0, 0.0004])
def test_an_end_that_is_now_isnt_none(left: float) -> None:
    """In nginx's memory what is kept for no time is kept for ever."""
    setting = f"answer.ends_in = {left} judge() answer = {{ status = 403 }}"
    assert run_verdicts(f"{setting} return {{ judge(), calls }}") == [403, 2]


@pytest.mark.parametrize("answer", ["{ status = 503 }", "nil"])
def test_while_nobody_can_say_a_verdict_is_good_for_five_minutes_but_not_beyond_the_tokens_end(answer: str) -> None:
    gone = f"judge() answer = {answer}"
    assert run_verdicts(f"{gone} return {{ after(61), after(238.9), after(0.2) }}") == [200, 200, 503]
    assert run_verdicts(f"answer.ends_in = 100 {gone} return {{ after(61), after(38.9), after(0.2) }}") == [
        200,
        200,
        503,
    ]


def test_a_refusal_counts_at_once_and_for_five_seconds() -> None:
    setting = "judge() answer = { status = 403 } after(61) answer = { status = 200 }"
    assert run_verdicts(f"{setting} return {{ after(4.9), calls, after(0.2), calls }}") == [403, 2, 200, 3]


@pytest.mark.parametrize(
    ("secure", "address", "open"),
    [
        (False, "192.0.2.7", True),
        (False, "2001:db8::1", True),
        (False, "::ffff:192.0.2.7", True),
        (False, "127.0.0.1", False),
        (False, "127.8.8.8", False),
        (False, "::1", False),
        (True, "192.0.2.7", False),
    ],
)
def test_only_https_and_this_machine_arent_in_the_open(secure: bool, address: str, open: bool) -> None:
    setting = f'ngx.var.remote_addr, caller.secure = "{address}", {str(secure).lower()}'
    assert run_verdicts(f"{setting} return {{ not not access.in_the_open(caller) }}") == [open]

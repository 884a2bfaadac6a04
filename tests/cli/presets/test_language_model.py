"""Which language model is asked, with whose key, and what becomes of its answers."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.errors import Refused
from cli.presets.language_model import ATTEMPTS, Model, NoAnswer, ask, chosen
from tests.cli.presets.scripted import Scripted

KEY = "sk-very-secret"


@pytest.mark.parametrize(
    ("written", "env", "agent"),
    [
        (
            {"provider": "openai", "model": "m"},
            {"DSTACK_AGENT_OPENAI_API_KEY": KEY},
            ("openai", "https://api.openai.com/v1", "m", None),
        ),
        (
            {"provider": "claude", "model": "m", "effort": "max"},
            {"DSTACK_AGENT_ANTHROPIC_API_KEY": KEY},
            ("claude", "https://api.anthropic.com/v1", "m", "max"),
        ),
        ({"provider": "openai", "url": "http://h/v1/", "model": "m"}, {}, ("openai", "http://h/v1", "m", None)),
        (
            None,
            {
                "DSTACK_AGENT_PROVIDER": "codex",
                "DSTACK_AGENT_OPENAI_API_KEY": KEY,
                "DSTACK_AGENT_OPENAI_MODEL": "m",
                "DSTACK_AGENT_CODEX_EFFORT": "high",
            },
            ("codex", "https://api.openai.com/v1", "m", "high"),
        ),
        (
            {},
            {"DSTACK_AGENT_OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "DSTACK_AGENT_OPENAI_MODEL": "m"},
            ("openai", "http://127.0.0.1:8000/v1", "m", None),
        ),
    ],
)
def test_the_file_comes_before_the_environment(written: Any, env: dict[str, str], agent: tuple[Any, ...]) -> None:
    found = chosen(written, env)
    assert tuple(found.agent.values()) == agent
    assert KEY not in repr(found) and found.key in (KEY, "")


@pytest.mark.parametrize(
    ("written", "env", "text"),
    [
        ({}, {"DSTACK_AGENT_PROVIDER": "gemini"}, "'gemini' is no provider"),
        ({"provider": "openai"}, {}, "No language model is named.*DSTACK_AGENT_OPENAI_MODEL"),
        ({"provider": "claude", "model": "m"}, {}, "There is no key.*DSTACK_AGENT_ANTHROPIC_API_KEY"),
        (
            {"provider": "claude", "model": "m"},
            {"DSTACK_AGENT_CLAUDE_PATH": "/usr/bin/claude"},
            "DSTACK_AGENT_CLAUDE_PATH is ignored: no program is started",
        ),
        ({"provider": "openai", "model": "m"}, {"DSTACK_AGENT_OPENAI_API_KEY": "a\nb"}, "contains a line break"),
        ({"provider": "openai", "model": "m", "url": "http://h:99999/v1"}, {}, "'http://h:99999/v1' is no address"),
        ({"provider": "openai", "model": "m"}, {"DSTACK_AGENT_OPENAI_BASE_URL": "h:80/v1"}, "'h:80/v1' is no address"),
    ],
)
def test_one_that_cant_be_asked_is_refused(written: Any, env: dict[str, str], text: str) -> None:
    with pytest.raises(Refused, match=text) as refused:
        chosen(written, env)
    assert "a\nb" not in str(refused.value)


def model(scripted: Scripted, effort: str | None = None) -> Model:
    return Model({"provider": "openai", "url": f"{scripted.url}/llm/v1", "model": "planner", "effort": effort}, KEY)


def test_it_is_asked_with_its_name_its_effort_and_the_key(scripted: Scripted) -> None:
    scripted.answers = ["hello"]
    asked = [{"role": "user", "content": "hi"}]
    assert ask(model(scripted, "high"), asked, sleep=lambda _: None) == "hello"
    assert scripted.asked == [{"model": "planner", "messages": asked, "reasoning_effort": "high"}]
    assert scripted.keys == [KEY]
    ask(model(scripted), asked, sleep=lambda _: None)
    assert "reasoning_effort" not in scripted.asked[1]


def test_what_may_pass_is_tried_again(scripted: Scripted) -> None:
    naps: list[float] = []
    scripted.answers = [(429, {"error": {"message": "slow down"}}), (503, {}), "hello"]
    assert ask(model(scripted), [], sleep=naps.append) == "hello"
    assert naps == [2.0, 4.0]


def test_it_gives_up_and_never_shows_the_key(scripted: Scripted) -> None:
    naps: list[float] = []
    scripted.answers = [(500, {"error": f"Bearer {KEY} is odd"})]
    with pytest.raises(NoAnswer, match=r"HTTP 500: Bearer \*\*\* is odd") as refused:
        ask(model(scripted), [], sleep=naps.append)
    assert len(scripted.asked) == ATTEMPTS == len(naps) + 1 and KEY not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((401, {"error": {"message": "no such key"}}), "HTTP 401: no such key"),
        ((302, {}), "HTTP 302"),
        ((200, {"choices": []}), "isn't a chat completion"),
        ((200, {"choices": [{"message": {"content": None}}]}), "isn't a chat completion"),
        ((200, [1]), "isn't a chat completion"),
    ],
)
def test_what_wont_pass_is_said_at_once(scripted: Scripted, answer: Any, text: str) -> None:
    scripted.answers = [answer]
    with pytest.raises(NoAnswer, match=text):
        ask(model(scripted), [], sleep=lambda _: pytest.fail("it waits in vain"))
    assert len(scripted.asked) == 1

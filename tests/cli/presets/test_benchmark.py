"""The requests that a service is measured with, and the figures that come of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.errors import Refused
from cli.presets import benchmark
from cli.presets.benchmark import Prompt, Sample, Target, random_prompts, read_dataset, repeated, send, summary
from cli.presets.search import Goal
from tests.cli.presets.scripted import Scripted, Service

GOAL = Goal(
    trials=1,
    concurrency=3,
    min_context_length=10,
    max_ttft=1,
    input_tokens=100,
    output_tokens=5,
    shared_prefix_tokens=40,
)
ONE = Prompt(({"role": "user", "content": "one two three"},), 5)


def test_prompts_are_as_long_as_asked_and_the_same_every_time() -> None:
    texts = [prompt.messages[0]["content"] for prompt in random_prompts(GOAL, tokens_per_word=2.0)]
    assert len(texts) == 3 * benchmark.PER_CLIENT == len(set(texts))
    assert {len(text.split()) for text in texts} == {50}
    assert len({" ".join(text.split()[:20]) for text in texts}) == 1, "40 tokens are shared"
    assert texts == [prompt.messages[0]["content"] for prompt in random_prompts(GOAL, tokens_per_word=2.0)]


def test_a_dataset_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    lines = [{"prompt": "hel\u2028lo"}, {"messages": [{"role": "system", "content": "x"}], "output_tokens": 7}]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n")
    first, second = read_dataset(path, "requests.jsonl")
    assert (first.messages[0]["content"], first.output_tokens, second.output_tokens) == ("hel\u2028lo", 1024, 7)
    assert repeated([first, second], 3) == [first, second, first]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "can't be read: No such file"),
        (b"\xff\xfe", "isn't text in UTF-8"),
        (b"", "has no requests"),
        (b'{"prompt": "a"}\nnonsense\n', "requests.jsonl:2 is no request"),
        (b'{"prompt": 3}\n', "requests.jsonl:1 is no request"),
        (b'{"messages": []}\n', "requests.jsonl:1"),
        (b'{"prompt": "a", "output_tokens": 0}\n', "requests.jsonl:1"),
        (b"[1]\n", "requests.jsonl:1"),
    ],
)
def test_a_dataset_that_cant_be_used_is_refused(tmp_path: Path, text: bytes | None, why: str) -> None:
    path = tmp_path / "requests.jsonl"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(Refused, match=why):
        read_dataset(path, "requests.jsonl")


def test_a_request_is_streamed_and_counted(scripted: Scripted) -> None:
    ticks = iter((10.0, 10.5, 12.0))
    found = send(Target(f"{scripted.url}/services/a/v1", "tok", "m"), ONE, lambda: next(ticks))
    assert found == Sample("", 0.5, 2.0, 3 + 7, 5)
    body = scripted.served[0][1]
    assert (body["model"], body["max_tokens"], body["stream"], body["ignore_eos"]) == ("m", 5, True, True)


def test_a_service_that_doesnt_count_is_counted_by_its_pieces(scripted: Scripted) -> None:
    scripted.services["a"] = Service(counts=False)
    found = send(Target(f"{scripted.url}/services/a/v1", "tok", "m"), ONE)
    assert (found.error, found.input_tokens, found.output_tokens) == ("", 0, 5)


def test_what_goes_wrong_is_the_samples_error(scripted: Scripted) -> None:
    scripted.services["a"] = Service(context=5)
    assert send(Target(f"{scripted.url}/services/a/v1", "t", "m"), ONE).error.startswith("HTTP 400: ")
    empty = Prompt(ONE.messages, 0)
    assert send(Target(f"{scripted.url}/services/b/v1", "t", "m"), empty).error == "an empty response"
    assert "refused" in send(Target("http://127.0.0.1:1/v1", "t", "m"), ONE).error


@pytest.mark.parametrize(
    ("events", "error", "tokens"),
    [
        ([{"choices": [{"delta": {"content": "a"}}], "usage": {"completion_tokens": "many"}}], "", 1),
        ([{"choices": [{"delta": {"content": "a"}}], "usage": [3]}], "", 1),
        ([{"choices": 3}, {"choices": [{"delta": "text"}, None]}], "an empty response", 0),
    ],
)
def test_whatever_a_service_sends_is_a_sample(scripted: Scripted, events: list[Any], error: str, tokens: int) -> None:
    scripted.stream = lambda name, body: (200, events)  # type: ignore[method-assign]
    found = send(Target(f"{scripted.url}/services/a/v1", "t", "m"), ONE)
    assert (found.error, found.output_tokens) == (error, tokens)


def test_figures() -> None:
    samples = [Sample("", at / 1000, at / 1000 + 1.0, 10, 101) for at in range(100, 2100, 100)]
    found = summary([*samples, Sample("HTTP 503: busy")], 4.0, 4096)
    expected: dict[str, Any] = {"requests": 21, "failed": 1, "error": "HTTP 503: busy", "seconds": 4.0}
    expected |= {"input_tokens": 200, "output_tokens": 2020, "tokens_per_second": 505.0, "context_length": 4096}
    expected |= {"ttft_ms": 1050.0, "ttft_p95_ms": 1900.0, "token_ms": 10.0}
    assert found == expected
    nothing = summary([Sample("gone")], 0.0, None)
    assert (nothing["tokens_per_second"], nothing["ttft_ms"], nothing["token_ms"]) == (0.0, 0.0, 0.0)
    assert summary([Sample("", 0.2, 0.2, 1, 1)], 1.0, None)["ttft_p95_ms"] == 200.0


def test_no_request_begins_once_it_is_to_stop(scripted: Scripted) -> None:
    target = Target(f"{scripted.url}/services/a/v1", "t", "m")
    stop: list[bool] = []
    scripted.services["a"] = Service(on_request=lambda: stop.append(True) if len(scripted.served) == 2 else None)
    samples, _ = benchmark.send_all(target, [ONE] * 50, 1, stopping=lambda: bool(stop), clock=lambda: 0.0)
    assert len(samples) == 3

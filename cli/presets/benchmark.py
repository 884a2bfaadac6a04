"""Requests to a service, and the figures that come of them.

Streaming chat completions, as many at a time as `concurrency` says. The prompts are random words, the same in every
trial, or those of the user's dataset; both are read here, before anything costs money.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from chalicelib.errors import Refused
from cli.presets.search import Goal

if TYPE_CHECKING:
    from chalicelib import contract

PER_CLIENT = 4  # requests of each of the concurrent clients
REQUEST_SECONDS = 300.0  # without a byte of the response
PROBE_TOKENS = 8  # of the responses that only show that there is one
SEED = 20
WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "hour",
]


@dataclass(frozen=True)
class Prompt:
    messages: tuple[dict[str, str], ...]
    output_tokens: int


@dataclass(frozen=True)
class Sample:
    """One request: what came of it."""

    error: str = ""
    first: float = 0.0  # seconds to the first token
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Target:
    """A service's API: where, with whose token, and the model's name there."""

    url: str  # up to /v1
    token: str
    model: str

    def connect(self) -> tuple[http.client.HTTPConnection, SplitResult]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=REQUEST_SECONDS), parts


# --- prompts ---


def words(count: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))  # noqa: S311 - no secrets


def random_prompts(goal: Goal, tokens_per_word: float) -> list[Prompt]:
    """`tokens_per_word`: of the model's own tokenizer, as its first answer shows."""
    shared = round(goal.shared_prefix_tokens / tokens_per_word)
    own = max(1, round(goal.input_tokens / tokens_per_word) - shared)
    prefix = words(shared, SEED)
    texts = (f"{prefix} {words(own, SEED + 1 + at)}".strip() for at in range(goal.concurrency * PER_CLIENT))
    return [Prompt(({"role": "user", "content": text},), goal.output_tokens) for text in texts]


def read_dataset(path: Path, shown: str) -> list[Prompt]:
    """The prompts of a JSON Lines file. Raises Refused."""
    hint = 'Each line is {"prompt": "..."} or {"messages": [...]}, with "output_tokens" if you like.'
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # a string may have other breaks
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it isn't text in UTF-8"
        raise Refused(
            f"The dataset {shown} can't be read: {reason}.", hint=f"Name a file on this machine. {hint}"
        ) from error
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(_prompt(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise Refused(f"{shown}:{number} is no request.", hint=hint) from error
    if not found:
        raise Refused(f"The dataset {shown} has no requests.", hint=hint)
    return found


def _prompt(line: Any) -> Prompt:
    messages = line["messages"] if "messages" in line else [{"role": "user", "content": line["prompt"]}]
    plain = tuple({"role": str(each["role"]), "content": _string(each["content"])} for each in messages)
    tokens = line.get("output_tokens", 1024)
    if not plain or not isinstance(tokens, int) or tokens < 1:
        raise ValueError("nothing to ask for")
    return Prompt(plain, tokens)


def _string(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("not a text")
    return found


def repeated(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """A dataset's requests, from its beginning again where they are too few."""
    return [prompts[at % len(prompts)] for at in range(count)]


# --- requests ---


def send(target: Target, prompt: Prompt, clock: Callable[[], float] = time.perf_counter) -> Sample:
    """One streaming request. Whatever goes wrong is the sample's error."""
    body = {
        "model": target.model,
        "messages": prompt.messages,
        "max_tokens": prompt.output_tokens,
        "temperature": 0,
        "ignore_eos": True,  # so that all responses are equally long, where the server knows it
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"}
    connection, parts = target.connect()
    began, first, chunks = clock(), 0.0, 0
    usage: dict[str, Any] = {}
    try:
        connection.request("POST", f"{parts.path}/chat/completions", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            return Sample(f"HTTP {response.status}: {_reason(response.read(4096))}")
        for event in _events(response):
            if event.get("error"):
                return Sample(f"an error in the stream: {json.dumps(event['error'])[:200]}")
            usage = _object(event.get("usage")) or usage
            if any(map(_has_text, found if isinstance(found := event.get("choices"), list) else ())):
                first, chunks = first or clock() - began, chunks + 1
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        return Sample(str(getattr(error, "strerror", None) or error or type(error).__name__))
    finally:
        connection.close()
    if not chunks:
        return Sample("an empty response")
    produced = _count(usage.get("completion_tokens")) or chunks
    return Sample("", first, clock() - began, _count(usage.get("prompt_tokens")), produced)


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
            event = json.loads(data)
            if isinstance(event, dict):
                yield event


def _object(found: Any) -> dict[str, Any]:
    """Nothing, if it is something else: whatever listens at a service's address may send anything."""
    return found if isinstance(found, dict) else {}


def _count(found: Any) -> int:
    return found if isinstance(found, int) and found > 0 else 0


def _has_text(choice: Any) -> bool:
    delta = _object(_object(choice).get("delta"))
    return any(delta.get(name) for name in ("content", "reasoning_content", "reasoning"))


def _reason(raw: bytes) -> str:
    return " ".join(raw.decode(errors="replace").split())[:200] or "no reason given"


def send_all(
    target: Target, prompts: Sequence[Prompt], clients: int, *, stopping: Callable[[], bool], clock: Callable[[], float]
) -> tuple[list[Sample], float]:
    """The samples and the seconds that all took. When it is to stop, no further request begins."""
    left, samples, lock = iter(prompts), [], threading.Lock()

    def client() -> None:
        while not stopping():
            with lock:
                prompt = next(left, None)
            if prompt is None:
                return
            sample = send(target, prompt, clock)
            with lock:
                samples.append(sample)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(min(clients, len(prompts)))]
    began = clock()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return samples, clock() - began


# --- figures ---


def summary(samples: Sequence[Sample], seconds: float, context_length: int | None) -> contract.Benchmark:
    good = [sample for sample in samples if not sample.error]
    bad = [sample.error for sample in samples if sample.error]
    gaps = [(one.seconds - one.first) / (one.output_tokens - 1) for one in good if one.output_tokens > 1]
    firsts = sorted(one.first for one in good)
    produced = sum(one.output_tokens for one in good)
    return {
        "requests": len(samples),
        "failed": len(bad),
        "error": bad[0] if bad else None,
        "seconds": round(seconds, 3),
        "input_tokens": sum(one.input_tokens for one in good),
        "output_tokens": produced,
        "tokens_per_second": round(produced / seconds, 2) if seconds > 0 else 0.0,
        "ttft_ms": round(median(firsts) * 1000, 1) if firsts else 0.0,
        "ttft_p95_ms": round(firsts[-(-len(firsts) * 95 // 100) - 1] * 1000, 1) if firsts else 0.0,
        "token_ms": round(median(gaps) * 1000, 2) if gaps else 0.0,
        "context_length": context_length,
    }

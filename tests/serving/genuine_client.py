"""OpenAI's own client, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from functools import cache

import pytest

from tests.harness.server import ROOT

BIN = ROOT / ".venvs" / "openai" / "bin"
CALLS = ROOT / "tests" / "serving" / "openai_client.py"
MODEL = "gpt-4.1"
ASKING = threading.Lock()
PLAIN = (
    "models",
    "chat",
    "chat_with_a_picture",
    "chat_stream",
    "completions",
    "embeddings",
    "responses",
    "responses_stream",
    "audio",
)


def needed() -> None:
    if not (BIN / "mock-ai-api").exists():
        pytest.skip("OpenAI's client isn't installed here; `make test` installs it into .venvs/openai")


def ask(base_url: str, key: str, *calls: str, **settings: str) -> dict[str, str]:
    """What came of each call."""
    asked = {"base_url": base_url, "api_key": key, "model": MODEL, **settings, "calls": calls}
    with ASKING:
        process = _process(os.getpid())
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        found: dict[str, str] = json.loads(process.stdout.readline())
    return found


@cache
def _process(_starter: int) -> subprocess.Popen[str]:
    """One for all tests of this process; it ends with the process, whose end of its input closes then."""
    return subprocess.Popen([BIN / "python", CALLS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def all_well(outcomes: dict[str, str], *calls: str) -> None:
    assert outcomes == dict.fromkeys(calls, "ok")
